"""The program under review, stopped at the first step of a real training, and methods to run its steps."""

import inspect
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.running import sandbox
from torchdoctor.running.batches import first_positions, first_samples
from torchdoctor.running.losses import record_log_probs
from torchdoctor.running.record import Record
from torchdoctor.running.steps import Step
from torchdoctor.running.transfer import apply_transfer_hooks
from torchdoctor.running.unchanged import modes_restored, unchanged

NUM_TRAIN, NUM_VAL = 8, 3  # batches that the probes look at
LONG_S, LONGEST_S = 0.25, 10.0  # a step that takes longer is slow; one that takes so long is ended
_KEPT_BYTES, _KEPT_S = 2**28, 3.0  # of the tensors of recorded steps, which stay alive; for recording them


class Replay(pl.LightningModule):
    """A script, as a module whose steps replay the script's own.

    Attributes:
        sources: the files of the step and of the script.
        files: these, and what the script imports from beside it.
        carries: whether a step goes on from a state that the one before left.
        reads_state: whether it reads that state, and does not make it anew.
        optimizes: whether a step lets its optimizers step.
    """

    sources: tuple[str, ...]
    files: tuple[str, ...]
    carries: bool
    reads_state: bool
    optimizes: bool

    @property
    def others(self) -> list[nn.Module]:
        """Modules of the script that are no part of this one, as a teacher; they evaluate with it."""
        raise NotImplementedError

    @property
    def loaders(self) -> list[Any]:
        """Of the training step."""
        raise NotImplementedError

    def optimize(self, batch: Any, index: int, note: Callable[[Tensor], None]) -> None:
        """Runs a step with the script's own optimizers and changes to gradients; `note` gets each loss."""
        raise NotImplementedError

    def ending_backwards(self) -> Any:
        """A context in which a step ends with its last `backward`."""
        raise NotImplementedError


@dataclass
class Subject:
    """A training at its first batch, before any optimizer step.

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
        watches: the notes of rehearsals, by the class that took them.
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
    watches: dict[Any, Any] = field(default_factory=dict, init=False)
    _lists: list[tuple[list[Any], list[Any]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        values = (value for module in self.model.modules() for value in vars(module).values())
        self._lists = [(value, value.copy()) for value in values if type(value) is list]

    @property
    def data(self) -> pl.LightningDataModule | None:
        """The data module, unless the loaders are the model's."""
        return getattr(self.trainer, "datamodule", None)

    def loaders(self, kind: str) -> list[DataLoader]:
        """The torch DataLoaders of a kind (train, val, test) that the user's method builds."""
        for owner in (self.data, self.model):
            if owner is not None and is_overridden(name := f"{kind}_dataloader", owner):
                loaders = _test_loaders(owner) if kind == "test" else getattr(owner, name)()
                return [loader for loader in pytree.tree_leaves(loaders) if isinstance(loader, DataLoader)]
        return []

    def train(self, batch: Any, index: int = 0) -> Tensor | None:
        """The loss of one training step; nothing is optimised, unless the module does so itself."""
        return _loss(_call(self.model.training_step, self.fresh(batch), index))

    def validate(self, batch: Any, index: int = 0) -> Any:
        """The result of one validation step."""
        return _call(self.model.validation_step, self.fresh(batch), index)

    def fresh(self, batch: Any) -> Any:
        """A copy of the batch, if steps modify theirs."""
        return deepcopy(batch) if self.consumes else batch

    def step(self, number: int = 0, training: bool = True) -> Step:
        """The recorded step on a training or validation batch; it is run once.

        Raises:
            Exception: whatever the step raises.
        """
        return self.attempt(number, training).checked()

    def attempt(self, number: int = 0, training: bool = True) -> Step:
        """Like `step`, but an exception is kept in `error`."""
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
        if not self.seconds or (self.seconds >= LONGEST_S and not self.limits):
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
        """Records a step on any batch, with a fixed seed, until it ends or raises."""
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
        """Records a training step and its backward pass, also for manual optimization.

        Raises:
            Exception: whatever the step raises.
        """
        with (
            self.dense_gradients(),
            record_log_probs() as values,
            self.ending_backwards(),
            self.not_trained() as losses,
        ):
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

    def forget_steps(self) -> None:
        """Drops recorded steps and what they gathered in lists of the modules, as weights are about to change."""
        self._steps.clear()
        for outputs, contents in self._lists:  # gathered outside of an epoch, or by a step that failed
            outputs[:] = contents

    def shortened(self, batch: Any) -> Any:
        """Shortens a batch as those of the subject were, if possible."""
        for cut, number in ((first_samples, self.samples), (first_positions, self.positions)):
            shorter = cut(batch, number) if number is not None else None
            batch = batch if shorter is None else shorter
        return batch

    @property
    def limits(self) -> list[str]:
        """Notes on how the review shortened the steps."""
        takes = f"a whole step takes {self.seconds:.1f} s" if self.seconds < LONGEST_S else "a whole step takes long"
        parts = [(self.samples, "samples of a batch"), (self.positions, "positions of a sequence")]
        return [f"all but the first {number} {name}: {takes}" for number, name in parts if number is not None]

    def accepts(self, batch: Any, training: bool = True) -> bool:
        """Whether a step runs on this batch: some need a certain number of samples."""
        step = self.train if training else self.validate
        return sandbox.attempt(lambda: [step(batch)] != [], LONGEST_S, False)  # its results may not leave the copy

    @property
    def is_slow(self) -> bool:
        """Whether a step with all samples takes so long that few are run."""
        return self.seconds >= LONG_S

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
        """Whether there are validation batches and a validation step."""
        return bool(self.val_batches) and type(self.model).validation_step is not pl.LightningModule.validation_step

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """A context that restores weights, buffers, attributes, modes and torch's random state."""
        state = torch.get_rng_state()
        try:
            with unchanged(self.model):
                yield
        finally:
            torch.set_rng_state(state)
            self.model.zero_grad()

    def ending_backwards(self) -> Any:
        """A context in which a script's step ends with its last `backward`: what follows may write into weights."""
        return self.script.ending_backwards() if self.script is not None else nullcontext()

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
        """A context in which optimizers only call their closure: manual optimization changes no weights."""

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
        """A context in which manual backward passes are skipped and their losses collected; no weight changes."""
        losses: list[Tensor] = []
        self.model.zero_grad()  # an optimizer's step inside the training step leaves weights without gradients alone
        note = mock.patch.object(self.model, "manual_backward", lambda loss, *_, **__: losses.append(loss))
        with note, self.not_optimized():
            yield losses

    def transferred(self, batch: Any) -> Any:
        """Applies the transfer hooks to a validation batch, with the trainer in validation."""
        stage, self.trainer.validating = self.trainer.state.stage, True
        try:
            with self.evaluating():
                return apply_transfer_hooks(self.trainer, batch)
        finally:
            self.trainer.state.stage = stage

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context in evaluation mode, set by the user's hook if there is one, without gradients."""
        with modes_restored([*self.model.modules(), *(self.script.others if self.script else ())]):
            self.model.on_validation_model_eval()
            try:
                with torch.no_grad():
                    yield
            finally:
                if type(self.model).on_validation_model_train is not pl.LightningModule.on_validation_model_train:
                    self.model.on_validation_model_train()


def _test_loaders(owner: Any) -> Any:
    """What test_dataloader returns, after the set-up for tests if need be; nothing without test data."""
    for prepare in (lambda: None, lambda: owner.setup("test")):
        with suppress(Exception):  # of any kind: only the set-up for training has run
            prepare()
            return owner.test_dataloader()
    return []


def _call(step: Callable[..., Any], batch: Any, index: int) -> Any:
    names = list(inspect.signature(step).parameters)
    if names[:1] == ["dataloader_iter"]:
        raise ValueError("steps that take a dataloader_iter are not reviewed")
    return step(*(batch, index, 0)[: max(1, len(names))])


def _loss(output: Any) -> Tensor | None:
    loss = output.get("loss") if isinstance(output, dict) else output
    return loss if isinstance(loss, Tensor) else None
