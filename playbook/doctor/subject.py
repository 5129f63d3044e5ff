"""What is reviewed: a module and its data amid the first step of a real training, and ways of running its steps."""

import inspect
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from playbook.doctor import sandbox, source
from playbook.doctor.arrival import arrive
from playbook.doctor.batches import changes, first, first_positions
from playbook.doctor.logger import AcceptingLogger
from playbook.doctor.losses import likelihoods
from playbook.doctor.record import Record, tensors
from playbook.doctor.steps import Step
from playbook.doctor.unchanged import log_nothing, unchanged

NUM_TRAIN, NUM_VAL, _FEW = 8, 3, 3  # batches that the probes look at; those of a rehearsal where steps take long
_STEPS, _MANY_VAL = 6, 50  # of a rehearsal: steps at least, validation batches if it needs all
_MANY_STEPS = 50  # which no rehearsal takes
_MAX_EPOCHS = 1000  # of a training for which the user chose none
_KEPT_BYTES, _KEPT_S = 2**28, 3.0  # of the tensors of recorded steps, which stay alive; for recording them
_LONG_S, _LONGEST_S, _LEAST = 0.25, 10.0, 4  # a step that takes longer is looked at with fewer samples
_SLOW_S, _POSITIONS = 3.0, 64  # and one that takes this long with shorter sequences


Notes = TypeVar("Notes", bound="Watch")


class Replay(pl.LightningModule):
    """A script, as a module whose steps replay the script's own.

    Attributes:
        sources: the files of the step and of the script.
        files: these, and what the script imports from beside it.
        carries: whether a step goes on from a state that the one before left.
        optimizes: whether a step lets its optimizers step.
    """

    sources: tuple[str, ...]
    files: tuple[str, ...]
    carries: bool
    optimizes: bool

    def optimize(self, batch: Any, index: int, note: Callable[[Tensor], None]) -> None:
        """Runs a step as the script does, with all that it does to gradients; `note` gets each of its losses."""
        raise NotImplementedError


@dataclass
class Subject:
    """A training that has just begun: nothing is optimised yet, the first batch is about to be.

    Args:
        model: in training mode, on the CPU, attached to the trainer.
        trainer: Lightning's, amid `fit`; its optimizers and schedules are those of configure_optimizers.
        batches: the first training batches, as the step gets them.
        val_batches: the first validation batches; none without a validation loader.
        settings: options of the Trainer that the user chose: max_epochs, gradient_clip_val, …
        seconds: that a training step computes.
        samples: that each batch is cut to, where that is long.
        positions: that each sequence is cut to, where it still is.
        consumes: whether a step changes the batch that it gets, so that each step gets a copy.
        unset: attributes of modules that hooks gave a tensor as the training began, and were None before.
    """

    model: pl.LightningModule
    trainer: pl.Trainer
    batches: list[Any]
    val_batches: list[Any] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    samples: int | None = None
    positions: int | None = None
    consumes: bool = False
    unset: list[tuple[nn.Module, str]] = field(default_factory=list)
    _steps: dict[tuple[int, bool], Step] = field(default_factory=dict, init=False)
    _watches: dict[Any, Any] = field(default_factory=dict, init=False)
    _lists: list[tuple[list[Any], list[Any]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        values = (value for module in self.model.modules() for value in vars(module).values())
        self._lists = [(value, value.copy()) for value in values if type(value) is list]

    @property
    def data(self) -> pl.LightningDataModule | None:
        """The data module, unless the loaders are the model's."""
        return getattr(self.trainer, "datamodule", None)

    def loaders(self, kind: str) -> list[DataLoader]:
        """Loaders of a kind (train, val, test), built by the user's method, as far as they are torch's."""
        for owner in (self.data, self.model):
            if owner is not None and is_overridden(name := f"{kind}_dataloader", owner):
                made = _test_loaders(owner) if kind == "test" else getattr(owner, name)()
                return [loader for loader in pytree.tree_leaves(made) if isinstance(loader, DataLoader)]
        return []

    def train(self, batch: Any, index: int = 0) -> Tensor | None:
        """The loss of one training step; nothing is optimised, unless the module does so itself."""
        return _loss(_call(self.model.training_step, self.fresh(batch), index))

    def validate(self, batch: Any, index: int = 0) -> Any:
        """The result of one validation step."""
        return _call(self.model.validation_step, self.fresh(batch), index)

    def fresh(self, batch: Any) -> Any:
        """A batch that a step may change."""
        return deepcopy(batch) if self.consumes else batch

    def step(self, number: int = 0, training: bool = True) -> Step:
        """The step on a training or validation batch, recorded once.

        Raises:
            Exception: whatever the step raises.
        """
        return self.attempt(number, training).checked()

    def attempt(self, number: int = 0, training: bool = True) -> Step:
        """The same, of which `error` says what it raised."""
        if (number, training) in self._steps:
            return self._steps[number, training]
        batch = (self.batches if training else self.val_batches)[number]
        with self.not_optimized(), nullcontext() if training else self.evaluating():
            step = self.record(batch, training, number)
        if number == 0 or self._has_room:
            self._steps[number, training] = step
        return step

    @property
    def _has_room(self) -> bool:
        """Whether further steps may be kept."""
        return sum(step.record.num_bytes for step in self._steps.values()) < _KEPT_BYTES

    def record_steps(self) -> None:
        """Records the steps on the first batches, which copies of this process then have."""
        if not self.seconds or (self.seconds >= _LONGEST_S and not self.limits):
            return  # it fails, ends its process or hangs
        deadline = time.monotonic() + _KEPT_S
        numbers = [(number, True) for number in range(len(self.batches))]
        numbers += [(number, False) for number in range(len(self.val_batches) if self.validates else 0)]
        with self.unchanged():
            for number, training in numbers:
                if self._has_room and time.monotonic() < deadline:
                    self.attempt(number, training).record.index()

    def steps(self, most: int = NUM_TRAIN) -> Iterator[Step]:
        """The steps on the training batches.

        Raises:
            Exception: whatever a step raises.
        """
        return (self.step(number) for number in range(len(self.batches[:most])))

    def record(self, batch: Any, training: bool = True, index: int = 0) -> Step:
        """A step on any batch with all its calls of torch, until it ends or raises; its random numbers are the same."""
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        batch, loss, error = self.fresh(batch), None, None
        with Record() as record:
            try:
                if training:
                    loss = _loss(_call(self.model.training_step, batch, index))
                else:
                    _call(self.model.validation_step, batch, index)
            except Exception as raised:  # whatever it is, the caller decides
                error = raised
        return Step(batch, record, loss, error)

    def backward(self, batch: Any) -> Step:
        """A training step on any batch and the backward pass of its loss, also where the module would run that itself.

        Raises:
            Exception: whatever the step raises.
        """
        with self.dense_gradients(), likelihoods() as values, self.not_trained() as losses:
            step = self.record(batch)
        if losses:  # what comes after them may need gradients, as the norm that an optimizer takes does
            step.error = None
        step.checked().likelihoods = values
        if self.model.automatic_optimization:
            step.go_backwards()
            return step
        step.loss = losses[0] if losses else None
        with suppress(RuntimeError):  # tensors may be changed in place since, as the step's own backward pass was over
            step.go_backwards()
        return step

    def rehearse(self, kinds: Iterable[Callable[["Subject"], pl.Callback]]) -> None:
        """Runs two epochs of a few batches with Lightning's Trainer; the model is trained from then on.

        An error may come from what is left out: the end of a validation may need all its batches, and gets them then.

        Args:
            kinds: make callbacks that take notes.

        Raises:
            Exception: whatever the program raises.
        """
        self._steps.clear()  # of weights that change
        kinds = list(kinds)
        for number in (NUM_VAL, _MANY_VAL):
            watches = {kind: kind(self) for kind in kinds}
            for outputs, contents in self._lists:  # gathered by steps outside of an epoch, or by one that failed
                outputs[:] = contents
            try:
                _rehearse(self, list(watches.values()), number)
                break
            except Exception:
                if number == _MANY_VAL or not _validates_longer(self):
                    raise
        self._watches |= watches

    def watch(self, kind: type[Notes]) -> Notes:
        """The notes of a rehearsal, which this runs unless it has been run with such a watch.

        Raises:
            Exception: whatever the program raises.
        """
        if kind not in self._watches:
            self.rehearse([kind])
        return self._watches[kind]

    def shorten(self) -> None:
        """Keeps fewer samples of each batch where a step with all of them takes long, and shorter sequences."""
        try:
            self.seconds, self.consumes = sandbox.call(lambda: _first_step(self), _LONGEST_S)
        except sandbox.SandboxError as error:  # if it raises, a probe will tell
            self.seconds = _LONGEST_S if "took more" in str(error) else 0.0
        if not self.is_slow:
            return
        size = max([len(leaf) for leaf in tensors(self.batches[0]) if leaf.dim()], default=0)
        number = max(_LEAST, int(size * _LONG_S / self.seconds))
        if self._cut(lambda batch: first(batch, number)):
            self.samples = number
        if self.seconds > _SLOW_S and self._cut(lambda batch: first_positions(batch, _POSITIONS)):
            self.positions = _POSITIONS

    def _cut(self, cut: Callable[[Any], Any]) -> bool:
        """Whether all batches can be cut so, and a step runs on them; they are then."""
        shorter = [cut(batch) for batch in (*self.batches, *self.val_batches)]
        is_possible = all(batch is not None for batch in shorter) and self._trains_on(shorter[: len(self.batches)][:2])
        if is_possible:
            self.batches, self.val_batches = shorter[: len(self.batches)], shorter[len(self.batches) :]
        return is_possible

    def _trains_on(self, batches: list[Any]) -> bool:
        """Whether steps run on these batches one after another: a step may keep as many samples as the loader gives."""

        def run() -> None:
            for number, batch in enumerate(batches):
                loss = self.train(batch, number)
                if self.model.automatic_optimization and loss is not None:
                    loss.backward()

        return _ends_well(run, 2 * _LONGEST_S)

    def shortened(self, batch: Any) -> Any:
        """Another batch, cut as those of the subject are, where it can be."""
        for cut, number in ((first, self.samples), (first_positions, self.positions)):
            shorter = cut(batch, number) if number is not None else None
            batch = batch if shorter is None else shorter
        return batch

    @property
    def limits(self) -> list[str]:
        """What the review left out of each step, as notes."""
        takes = f"a whole step takes {self.seconds:.1f} s" if self.seconds < _LONGEST_S else "a whole step takes long"
        parts = [(self.samples, "samples of a batch"), (self.positions, "positions of a sequence")]
        return [f"all but the first {number} {name}: {takes}" for number, name in parts if number is not None]

    def takes(self, batch: Any, training: bool = True) -> bool:
        """Whether a step runs on this batch: some need a certain number of samples."""
        step = self.train if training else self.validate
        return _ends_well(lambda: step(batch), _LONGEST_S)

    @property
    def is_slow(self) -> bool:
        """Whether a step with all samples takes so long that few are run."""
        return self.seconds >= _LONG_S

    @property
    def script(self) -> Replay | None:
        """The model, if it replays a script."""
        return self.model if isinstance(self.model, Replay) else None

    @property
    def files(self) -> list[str]:
        """The files of the model's classes, and those that a script is made of."""
        return sorted({*source.files_of(self.model), *(self.script.files if self.script else ())})

    @property
    def validates(self) -> bool:
        """Whether there are validation batches and a step for them."""
        return bool(self.val_batches) and type(self.model).validation_step is not pl.LightningModule.validation_step

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Leaves the model's weights, buffers, attributes and modes, and torch's random state, as they were."""
        state = torch.get_rng_state()
        try:
            with unchanged(self.model):
                yield
        finally:
            torch.set_rng_state(state)
            self.model.zero_grad()

    @contextmanager
    def dense_gradients(self) -> Iterator[None]:
        """Embeddings whose gradients are sparse get dense ones, of the same values."""
        with ExitStack() as stack:
            for module in self.model.modules():
                if getattr(module, "sparse", False) is True:
                    stack.enter_context(mock.patch.object(module, "sparse", False))
            yield

    @contextmanager
    def not_optimized(self) -> Iterator[None]:
        """Steps that optimise by themselves change no weight and no rate: the optimizers only call the closure."""

        def idle(closure: Any = None, *_: Any, **__: Any) -> Any:
            return closure() if callable(closure) else None

        with ExitStack() as stack:
            for thing in (*self.trainer.optimizers, *(each.scheduler for each in self.trainer.lr_scheduler_configs)):
                stack.enter_context(mock.patch.object(thing, "step", idle))
            yield

    def at(self, epoch: int, step: int) -> Any:
        """A context in which the training is at this epoch and step."""
        return mock.patch.multiple(pl.Trainer, current_epoch=epoch, global_step=step)

    @contextmanager
    def not_trained(self) -> Iterator[list[Tensor]]:
        """Steps that go backwards by themselves do not, and change no weight; their losses are gathered."""
        losses: list[Tensor] = []
        self.model.zero_grad()  # an optimizer's step inside the training step leaves weights without gradients alone
        note = mock.patch.object(self.model, "manual_backward", lambda loss, *_, **__: losses.append(loss))
        with note, self.not_optimized():
            yield losses

    def arrived(self, batch: Any) -> Any:
        """A validation batch after the hooks on its way to the device, which may ask whether this is training."""
        stage, self.trainer.validating = self.trainer.state.stage, True
        try:
            with self.evaluating():
                return arrive(self.trainer, batch)
        finally:
            self.trainer.state.stage = stage

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Modules in evaluation mode, by the user's own hook if there is one, without gradients."""
        modes = {part: part.training for part in self.model.modules()}
        self.model.on_validation_model_eval()
        try:
            with torch.no_grad():
                yield
        finally:
            if type(self.model).on_validation_model_train is not pl.LightningModule.on_validation_model_train:
                self.model.on_validation_model_train()
            for part, training in modes.items():
                part.training = training


def trainer(settings: dict[str, Any], **more: Any) -> pl.Trainer:
    """Lightning's Trainer on the CPU, with the user's settings and nothing that writes or prints."""
    quiet = {
        "logger": AcceptingLogger(settings.get("default_root_dir") or tempfile.gettempdir()),
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fixed = {"accelerator": "cpu", "devices": 1, "num_sanity_val_steps": 0, "barebones": False}
    return pl.Trainer(**{"max_epochs": _MAX_EPOCHS, **settings, **quiet, **fixed, **more})


class Watch(pl.Callback):
    """Takes notes in a rehearsal.

    Args:
        subject: before it begins.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject


def _validates_longer(subject: Subject) -> bool:
    """Whether a rehearsal leaves out validation batches, and a longer one would not."""
    return NUM_VAL < max((sized_len(each) or 0 for each in subject.loaders("val")), default=0) <= _MANY_VAL


def _rehearse(subject: Subject, watches: list[pl.Callback], num_val: int) -> None:
    """A real training of a few steps, in place of the one that the subject is at the beginning of."""
    for name in ("log", "log_dict"):
        if callable(vars(subject.model).get(name)):  # not what the user has there
            delattr(subject.model, name)
    if subject.limits:
        move = subject.model._apply_batch_transfer_handler
        setattr(subject.model, move.__name__, lambda batch, **where: subject.shortened(move(batch, **where)))
    for owner in filter(None, (subject.model, subject.data)):
        owner.setup = owner.prepare_data = lambda *_, **__: None  # done already, and perhaps only once
    most = subject.settings.get("max_steps") or -1
    limits = {
        "max_steps": most if most > _MANY_STEPS else -1,  # of the schedules that end with the training
        "limit_train_batches": _FEW if subject.is_slow else NUM_TRAIN,
        "limit_val_batches": num_val,
    }
    num_epochs = max(2, math.ceil(_STEPS / subject.trainer.num_training_batches))
    limits["max_epochs"] = max(num_epochs, subject.settings.get("max_epochs") or _MAX_EPOCHS)
    short = trainer(subject.settings | limits, callbacks=[*watches, _End(num_epochs)], log_every_n_steps=1)
    with mock.patch.object(pl.Trainer, "estimated_stepping_batches", subject.trainer.estimated_stepping_batches):
        short.fit(subject.model, datamodule=subject.data)
    log_nothing(subject.model)


class _End(pl.Callback):
    """Ends a training after so many epochs, of which warm-ups that are a share of the whole must not see."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop |= trainer.current_epoch + 1 >= self.num_epochs


def _test_loaders(owner: Any) -> Any:
    """What test_dataloader returns, after the set-up for tests if need be; nothing without test data."""
    for prepare in (lambda: None, lambda: owner.setup("test")):
        with suppress(Exception):  # of any kind: only the set-up for training has run
            prepare()
            return owner.test_dataloader()
    return []


def _ends_well(act: Callable[[], object], limit_s: float) -> bool:
    """Whether a copy of this process does it without an error and in time."""
    return sandbox.attempt(lambda: [act()] != [], limit_s, False)  # what a step returns may not leave its process


def _first_step(subject: Subject) -> tuple[float, bool]:
    """How long a training step computes, and whether it or a validation step changes its batch."""
    start = time.process_time()  # other work on the machine does not count
    consumes = changes(subject.batches[0], subject.train)
    seconds = time.process_time() - start
    if subject.validates and not consumes and seconds < _SLOW_S:
        with subject.evaluating():
            consumes = changes(subject.val_batches[0], subject.validate)
    return seconds, consumes


def _call(step: Callable[..., Any], batch: Any, index: int) -> Any:
    names = list(inspect.signature(step).parameters)
    if names[:1] == ["dataloader_iter"]:
        raise ValueError("steps that take a dataloader_iter are not reviewed")
    return step(*(batch, index, 0)[: max(1, len(names))])


def _loss(output: Any) -> Tensor | None:
    found = output.get("loss") if isinstance(output, dict) else output
    return found if isinstance(found, Tensor) else None
