"""Changes that make a training faster: each is made in a copy of the process and timed against the program as it is."""

import ast
import linecache
import pickle
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from math import ceil
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor import blame, sandbox, source
from torchdoctor.findings import Place
from torchdoctor.machine import crowding, num_cores
from torchdoctor.record import Record, tensors
from torchdoctor.registry import all_defects
from torchdoctor.report import is_accepted
from torchdoctor.samples import leaves, size, train_loaders
from torchdoctor.subject import Subject
from torchdoctor.training import parameters_of, step

FUSED, CHANNELS_LAST, WORKERS = "fused-optimizer", "channels-last", "more-workers"

_LEAST = 0.1  # of the time that a change must save
_PAIRS, _WINS = 10, 8  # alternating runs, and those of them in which it must
_RUN_S = 0.004  # of a run, which takes several steps where they are short
_LONGEST_S = 0.5  # steps that take longer are not tried
_LIMIT_S = 12.0  # for one change
_NUM_WORKERS, _NUM_READ = 2, 64  # processes, and batches that are read in turns
_READING = 0.15  # of a step and its batch that a batch must take for workers to be tried
_CLOSE = 1e-3  # of a loss, or of what a step changes
_LONGEST = 100  # characters of a line that is shown
_STEP = "a whole step takes"
_SHOWN_BY = "the change was made in a copy of the process and timed against the program as it is"

Timer = Callable[[Callable[[], Any], Callable[[], float]], float]  # gets what to run, and a clock
Gain = tuple[float, float]  # seconds without and with a change
Item = dict[str, Any] | str  # advice, or a line on what could not be tried


def measure(act: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds that a function takes."""
    start = clock()
    act()
    return clock() - start


def try_gains(subject: Subject, timer: Timer = measure) -> tuple[list[dict[str, Any]], list[str]]:
    """Advice on speed, in the form of `practices.advise`, and lines on what could not be tried.

    A change is advised if it saves a tenth of a step in 8 of 10 alternating runs and in the median, and if the results
    stay the same. Steps are timed on one core, without the work of other processes.

    Args:
        subject: stays as it is.
        timer: measures a run.
    """
    items: list[Item | sandbox.SandboxError] = []
    if subject.is_slow:  # its batches are cut
        items += [_untried(subject.seconds)] if _fusible(subject) else []
    elif subject.seconds:  # else the step fails
        for trial in _trials(subject, timer):
            items += sandbox.gather([trial], _LIMIT_S * crowding())[0]
    advice = [item for item in items if isinstance(item, dict)]
    return advice, list(dict.fromkeys(f"a faster step: {item}" for item in items if not isinstance(item, dict)))


def add_gains(answer: dict[str, Any], subject: Subject, ids: frozenset[str]) -> None:
    """Adds to an answer what `try_gains` says, in a review that takes its time and reports advice.

    Args:
        answer: Report's fields.
        subject: stays as it is.
        ids: of the defects to look for.
    """
    defects = [all_defects()[name] for name in ids]
    if any(defect.severity == "advice" for defect in defects) and any(defect.long for defect in defects):
        answer["gains"], notes = try_gains(subject)
        answer["notes"] += notes


def _trials(subject: Subject, timer: Timer) -> Iterator[Callable[[], Iterator[Item]]]:
    """The changes that fit a program and that its user has not declined."""
    for optimizer in _fusible(subject):
        place = blame.maker(optimizer) or _definition(subject, optimizer)
        if place is not None and not is_accepted(place, FUSED):
            yield partial(_try_fused, subject, optimizer, place, timer)
            break  # of one that stands for all
    owners = [(name, place) for name, place in _convolutional(subject) if not is_accepted(place, CHANNELS_LAST)]
    if owners:
        yield partial(_try_channels_last, subject, owners, timer)
    for loader in _single(train_loaders(subject)):
        place = next(iter(blame.makers(loader)), None) or _loader_line(subject)
        if place is not None and not is_accepted(place, WORKERS) and _takes_workers(loader):
            yield partial(_try_workers, subject, loader, place, timer)


@dataclass
class _Side:
    """One side of a comparison: a program with weights and optimizer states of its own.

    Args:
        subject: whose steps run.
        fused: optimizers whose step one kernel does.
        memory_format: of weights and images, where it is not theirs.
    """

    subject: Subject
    fused: list[Optimizer] = field(default_factory=list)
    memory_format: torch.memory_format | None = None
    index: int = 0

    def __post_init__(self) -> None:
        optimizers = self.subject.trainer.optimizers
        weights = dict.fromkeys([*self.subject.model.parameters(), *parameters_of(optimizers)])
        self.weights = {weight: self._own(weight.detach()) for weight in weights}
        self.states = [
            defaultdict(dict, {key: pytree.tree_map_only(Tensor, self._own, value) for key, value in state.items()})
            for state in (optimizer.state for optimizer in optimizers)
        ]

    def _own(self, tensor: Tensor) -> Tensor:
        is_changed = self.memory_format is not None and tensor.dim() == 4
        return tensor.clone(memory_format=self.memory_format if is_changed else torch.preserve_format)

    def enter(self) -> None:
        """Gives the program this side's weights, states and options."""
        for weight, values in self.weights.items():
            weight.data, weight.grad = values, None
        for optimizer, state in zip(self.subject.trainer.optimizers, self.states, strict=True):
            optimizer.state = state
        for optimizer in _fusible(self.subject):
            for group in optimizer.param_groups:
                group["fused"] = True if optimizer in self.fused else None

    def step(self) -> float | None:
        """Runs a step, with all batches of an accumulation, and returns its loss."""
        batches = self.subject.batches
        number = int(self.subject.settings.get("accumulate_grad_batches") or 1)
        batches = [batches[(self.index + i) % len(batches)] for i in range(number)]
        if self.memory_format is not None:
            batches = pytree.tree_map_only(Tensor, self._sent, batches)
        self.index += 1
        return step(self.subject, batches, self.index)

    def _sent(self, leaf: Tensor) -> Tensor:
        return leaf.to(memory_format=self.memory_format) if _is_image(leaf) else leaf

    def seconds(self, timer: Timer) -> float:
        """Of a step."""
        self.enter()
        return timer(self.step, time.process_time)

    def first(self) -> "_First":
        """A first step without dropout, which no seed makes the same in another memory format."""
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        self.enter()
        with self.subject.unchanged():
            for module in self.subject.model.modules():
                if isinstance(module, nn.modules.dropout._DropoutNd):
                    module.training = False
            before = [weight.detach().clone() for weight in self.weights]
            loss = self.step()
            return _First(loss, before, [weight.detach().clone() for weight in self.weights])


class _First(NamedTuple):
    """The loss of a step, and the weights before and after it."""

    loss: float | None
    before: list[Tensor]
    after: list[Tensor]

    def updates_as(self, other: "_First") -> bool:
        """Whether this step has changed weights, and another one in the same way."""
        is_changed = False
        for before, one, two in zip(self.before, self.after, other.after, strict=True):
            moved = float((one - before).abs().max()) if before.numel() else 0.0
            is_changed |= moved > 0
            if not torch.allclose(one, two, rtol=1e-5, atol=_CLOSE * moved):
                return False
        return is_changed


def _untried(seconds: float) -> str:
    return f"no change was tried, as one takes {seconds:.1f} s"


def _compare(plain: _Side, changed: _Side, seconds: float, timer: Timer) -> Iterator[Gain]:
    """Seconds of a step of both sides where the change gains; a step of the first takes about so many."""
    number = max(1, ceil(_RUN_S / seconds)) if seconds else 1

    def run(side: _Side) -> float:
        side.enter()
        return timer(lambda: [side.step() for _ in range(number)], time.process_time) / number

    yield from gain(partial(run, plain), partial(run, changed))


def gain(plain: Callable[[], float], changed: Callable[[], float]) -> Iterator[Gain]:
    """The medians of alternating runs where the second is shorter by enough, and in enough of the runs.

    Args:
        plain: runs the program as it is, and returns the seconds.
        changed: runs the changed one.
    """
    pairs: list[Gain] = []
    while len(pairs) < _PAIRS:
        pairs.append((plain(), changed()))
        losses = sum(after > (1 - _LEAST) * before for before, after in pairs)
        if losses > _PAIRS - _WINS:
            return
    before, after = (median(times) for times in zip(*pairs, strict=True))
    if after <= (1 - _LEAST) * before:
        yield before, after


def _entry(name: str, places: list[Place], code: str, what: str, times: Gain) -> dict[str, Any]:
    before, after = times
    text = f"{code}: {what} {_ms(after)} ms in place of {_ms(before)} (−{100 * (1 - after / before):.0f} %)."
    at = [{"file": place.file, "line": place.line, "detail": ""} for place in places]
    return {"id": name, "section": "Performance", "text": text, "places": at, "fix": code, "shown_by": _SHOWN_BY}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}" if seconds >= 0.00995 else f"{1e3 * seconds:.2g}"


def _with_option(place: Place, name: str, option: str) -> str:
    """The call of a class at a line with a further option; shortened where it is long or on several lines."""
    call = blame.call_at(place, name)
    text = ast.get_source_segment("".join(linecache.getlines(place.file)), call) if call is not None else None
    keys = {keyword.arg for keyword in call.keywords} if call is not None else set()
    if text is None or "\n" in text or len(text) > _LONGEST or None in keys or option.partition("=")[0] in keys:
        return f"{name}(…, {option})"
    targets = [node.targets[0] for node in source.around(place, ast.Assign) if node.value is call]
    return "".join(f"{ast.unparse(target)} = " for target in targets) + f"{text[:-1].rstrip(', ')}, {option})"


def _definition(subject: Subject, optimizer: Optimizer) -> Place | None:
    make = type(subject.model).configure_optimizers
    return source.first_call([make], type(optimizer).__name__) or source.definition(make)


# ---------------------------------------------------------------------------------------------------------- fused


def _fusible(subject: Subject) -> list[Optimizer]:
    """Optimizers whose step one kernel can do, and for which the user has not chosen how it is done."""
    is_sparse = any(getattr(module, "sparse", False) is True for module in subject.model.modules())
    if is_sparse or "mixed" in str(subject.trainer.precision):  # in which Lightning clips no gradients of fused ones
        return []
    return [each for each in subject.trainer.optimizers if type(each) in (Adam, AdamW, SGD) and _is_free(each)]


def _is_free(optimizer: Optimizer) -> bool:
    names = ("foreach", "fused", "differentiable")
    is_chosen = any(optimizer.defaults.get(name) for name in names) or optimizer.defaults.get("fused") is False
    dense = (each.layout == torch.strided and each.is_floating_point() for each in parameters_of([optimizer]))
    return not is_chosen and all(dense)


def _try_fused(subject: Subject, optimizer: Optimizer, place: Place, timer: Timer) -> Iterator[Item]:
    """PyTorch's fused kernels do in one pass what is otherwise several calls for each parameter."""
    script = subject.script
    if script is not None and not script.optimizes:
        yield "the step that is replayed ends before its optimizer's, which may gain from fused=True"
        return
    plain, changed = _Side(subject), _Side(subject, _fusible(subject))
    first, seconds = plain.first(), plain.seconds(timer)
    if seconds > _LONGEST_S:
        yield _untried(seconds)
    elif _updating(plain, timer) >= _LEAST * seconds and first.updates_as(changed.first()):
        for times in _compare(plain, changed, seconds, timer):
            yield _entry(FUSED, [place], _with_option(place, type(optimizer).__name__, "fused=True"), _STEP, times)


def _updating(side: _Side, timer: Timer) -> float:
    """Seconds of the optimizers' own part of a step, which is all that a fused one could save."""
    side.enter()
    optimizers = _fusible(side.subject)
    for weight in parameters_of(optimizers):
        weight.grad = torch.zeros_like(weight)
    return timer(lambda: [optimizer.step() for optimizer in optimizers], time.process_time)


# -------------------------------------------------------------------------------------------------- channels last


def _is_image(leaf: Tensor) -> bool:
    return leaf.layout == torch.strided and leaf.dim() == 4 and leaf.is_floating_point() and leaf.shape[1] >= 3


def _convolutional(subject: Subject) -> list[tuple[str, Place]]:
    """What has the convolutions of images in colour, by its name in the program, and the lines that make it."""
    model = subject.model
    channels = {leaf.shape[1] for leaf in tensors(subject.batches[:1]) if _is_image(leaf)}
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    is_changed = any(not layer.weight.is_contiguous() for layer in layers)
    if is_changed or channels.isdisjoint(layer.in_channels for layer in layers):
        return []
    parts = [(name, part) for name, part in model.named_children() if not set(layers).isdisjoint(part.modules())]
    if subject.script is not None:
        lines = [(name, blame.maker(part) or source.definition(type(part))) for name, part in parts]
    elif any(part in layers for _, part in parts) or len(parts) > 1:
        lines = [("self", source.definition(type(model)))]
    else:
        lines = [(f"self.{name}", blame.layer(model, part)) for name, part in parts]
    return [(name, place) for name, place in lines if place is not None]


def _try_channels_last(subject: Subject, owners: list[tuple[str, Place]], timer: Timer) -> Iterator[Item]:
    """Convolutions read images whose channels lie next to each other faster; images are converted in each step."""
    plain, changed = _Side(subject), _Side(subject, memory_format=torch.channels_last)
    one, seconds = plain.first().loss, plain.seconds(timer)
    if seconds > _LONGEST_S:
        yield _untried(seconds)
        return
    other = changed.first().loss
    if one is None or other is None or not abs(one - other) <= _CLOSE * abs(one):
        return
    names, places = [name for name, _ in owners], [place for _, place in owners]
    code = "; ".join(f"{name}.to(memory_format=torch.channels_last)" for name in names) + ", and images likewise"
    for times in _compare(plain, changed, seconds, timer):
        yield _entry(CHANNELS_LAST, places, code, _STEP, times)


# -------------------------------------------------------------------------------------------------------- workers


def _single(things: list[DataLoader]) -> list[DataLoader]:
    return things if len(things) == 1 else []


def _loader_line(subject: Subject) -> Place | None:
    return next((place for _, places in blame.loaders(subject, "train") for place in places[:1]), None)


def _takes_workers(loader: DataLoader) -> bool:
    """Whether a loader could have workers, and has none."""
    return type(loader) is DataLoader and not loader.num_workers and bool(loader.batch_sampler and size(loader.dataset))


def _try_workers(subject: Subject, loader: DataLoader, place: Place, timer: Timer) -> Iterator[Item]:
    """Two processes read batches while steps compute. Nothing that they have read before a run counts in its time."""
    order = list(islice(loader.batch_sampler or (), _NUM_READ))
    side, plain = _Side(subject), _stream(loader, order, 0)
    batch = next(plain)
    side.enter()
    side.step()
    one_s, read_s = timer(side.step, time.perf_counter), timer(lambda: next(plain), time.perf_counter)
    if read_s < _READING * (read_s + one_s) or _asks_model(subject, plain):
        return
    if num_cores() < _NUM_WORKERS:
        yield f"a batch takes {_ms(read_s)} ms beside a step of {_ms(one_s)}; one core cannot show what workers gain"
        return
    if read_s + one_s > _LONGEST_S:
        yield _untried(read_s + one_s)
        return
    changed, again = _stream(loader, order, _NUM_WORKERS), next(_stream(loader, order, 0))
    if _is_equal(batch, again) and not _is_equal(batch, next(changed)):  # else the samples are random
        return
    number = max(2, ceil(_RUN_S / (read_s + one_s)))

    def run(stream: Iterator[Any]) -> float:
        return timer(lambda: [(next(stream), side.step()) for _ in range(number)], time.perf_counter) / number

    def run_changed() -> float:
        for _ in range(_NUM_WORKERS):
            next(changed)
        seconds = run(changed)
        time.sleep(read_s)  # until the workers have read ahead, and leave the core to the other side
        return seconds

    for times in gain(partial(run, plain), run_changed):
        code = _with_option(place, "DataLoader", f"num_workers={_NUM_WORKERS}, persistent_workers=True")
        yield _entry(WORKERS, [place], code, "a whole step and its batch take", times)


def _stream(loader: DataLoader, order: list[Any], num_workers: int) -> Iterator[Any]:
    """Batches of a loader in an endless order, with workers or without.

    Arrays are sent as bytes: a script in a review has no sockets, by which workers pass tensors on.
    """

    def collate(items: list[Any]) -> bytes | Any:
        batch = loader.collate_fn(items)
        return pickle.dumps(pytree.tree_map_only(Tensor, Tensor.numpy, batch)) if num_workers else batch

    again = DataLoader(
        loader.dataset,
        batch_sampler=cycle(order),
        collate_fn=collate,
        num_workers=num_workers,
        prefetch_factor=1 if num_workers else None,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context="fork" if num_workers else None,
    )
    for batch in again._get_iterator():  # by iter() a script's loaders run without workers in a review
        loaded = pickle.loads(batch) if num_workers else batch  # noqa: S301 - our own
        yield pytree.tree_map_only(np.ndarray, torch.from_numpy, loaded)


def _asks_model(subject: Subject, stream: Iterator[Any]) -> bool:
    """Whether a part of the model is called for a batch: that of a worker would not learn."""
    with Record() as record:
        next(stream)
    return not {module for module, _, _ in record.calls}.isdisjoint(subject.model.modules())


def _is_equal(one: Any, other: Any) -> bool:
    first, second = leaves(one), leaves(other)
    return first.keys() == second.keys() and all(torch.equal(first[path], second[path]) for path in first)
