"""Changes that make a training faster: each is made in a copy of the process and timed against the program as it is."""

import ast
import linecache
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.samples import asks_model, dataset_size, leaves, train_loaders
from torchdoctor.findings import Place
from torchdoctor.registry import all_defects
from torchdoctor.report import is_accepted
from torchdoctor.running import sandbox
from torchdoctor.running.comparison import LEAST, RUN_S, Gain, Side, Timer, compare, gain, is_image, measure
from torchdoctor.running.machine import load_factor, num_cores
from torchdoctor.running.record import tensors
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import parameters_of

FUSED, CHANNELS_LAST, WORKERS = "fused-optimizer", "channels-last", "more-workers"

_LONGEST_S, _LONGEST_READ_S = 0.1, 0.1  # steps, and steps with their batches, that take longer are not tried
_LIMIT_S, _LEAST_S = 5.0, 1.0  # for one change, at most and at least
_SHARE = 0.5  # of the time that is left to a review
_NUM_WORKERS, _NUM_READ = 2, 64  # processes, and batches that are read in turns
_TIMES = 3  # of a step and of a batch, of which the fastest counts
_READING = 0.15  # of a step and its batch that a batch must take for workers to be tried
_LONGEST = 100  # characters of a line that is shown
_STEP = "a whole step takes"
_SHOWN_BY = "the change was made in a copy of the process and timed against the program as it is"

Item = dict[str, Any] | str  # advice, or a line on what could not be tried


def try_gains(subject: Subject, limit_s: float, timer: Timer = measure) -> tuple[list[dict[str, Any]], list[str]]:
    """Advice on speed, in the form of `practices.advise`, and lines on what could not be tried.

    A change is advised if it saves a tenth of a step in 8 of 10 alternating runs and in the median, and if the results
    stay the same. Steps are timed on one core, without the work of other processes.

    Args:
        subject: stays as it is.
        limit_s: seconds for all of them.
        timer: measures a run.
    """
    items: list[Item | sandbox.SandboxError] = []
    deadline = time.monotonic() + limit_s
    if subject.is_slow:  # its batches are cut
        items += [_untried(subject.seconds)] if _fusible(subject) else []
    elif subject.seconds:  # else the step fails
        for trial in _trials(subject, timer):
            left = min(_LIMIT_S * load_factor(), deadline - time.monotonic())
            items += sandbox.gather([trial], left)[0] if left > _LEAST_S else ["no time was left to try changes"]
    advice = [item for item in items if isinstance(item, dict)]
    return advice, list(dict.fromkeys(f"a faster step: {item}" for item in items if not isinstance(item, dict)))


def add_gains(answer: dict[str, Any], subject: Subject, ids: frozenset[str], deadline: float) -> None:
    """Adds to an answer what `try_gains` says, in a review that takes its time and reports advice.

    Args:
        answer: Report's fields.
        subject: stays as it is.
        ids: of the defects to look for.
        deadline: of the review, in seconds of `time.monotonic`.
    """
    defects = [all_defects()[name] for name in ids]
    if any(defect.severity == "advice" for defect in defects) and any(defect.long for defect in defects):
        answer["gains"], notes = try_gains(subject, _SHARE * (deadline - time.monotonic()))
        answer["notes"] += notes


def _trials(subject: Subject, timer: Timer) -> Iterator[Callable[[], Iterator[Item]]]:
    """The changes that fit a program and that its user has not declined."""
    makers = [(each, origins.maker(each) or _definition(subject, each)) for each in _fusible(subject)]
    fusible = {each: place for each, place in makers if place is not None and not is_accepted(place, FUSED)}
    if fusible:
        yield partial(_try_fused, subject, fusible, timer)
    owners = [(name, place) for name, place in _convolutional(subject) if not is_accepted(place, CHANNELS_LAST)]
    if owners:
        yield partial(_try_channels_last, subject, owners, timer)
    loaders = train_loaders(subject)
    for loader in loaders if len(loaders) == 1 else ():
        place = next(iter(origins.makers(loader)), None) or _loader_line(subject)
        if place is not None and not is_accepted(place, WORKERS) and _takes_workers(loader):
            yield partial(_try_workers, subject, loader, place, timer)


def _untried(seconds: float) -> str:
    return f"no change was tried, as one takes {seconds:.1f} s"


def _entry(name: str, places: list[Place], code: str, what: str, times: Gain) -> dict[str, Any]:
    before, after = times
    text = f"{code}: {what} {_ms(after)} ms in place of {_ms(before)} (−{100 * (1 - after / before):.0f} %)."
    at = [{"file": place.file, "line": place.line, "detail": ""} for place in places]
    return {"id": name, "section": "Performance", "text": text, "places": at, "fix": code, "shown_by": _SHOWN_BY}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}" if seconds >= 0.00995 else f"{1e3 * seconds:.2g}"


def _with_option(place: Place, name: str, option: str) -> str:
    """The call of a class at a line with a further option; shortened where it is long or on several lines."""
    call = origins.call_at(place, name)
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
    groups = optimizer.param_groups
    is_chosen = any(group.get(name) is not None for group in groups for name in ("foreach", "fused"))
    dense = (each.layout == torch.strided and each.is_floating_point() for each in parameters_of([optimizer]))
    return not is_chosen and not any(group.get("differentiable") for group in groups) and all(dense)


def _try_fused(subject: Subject, fusible: dict[Optimizer, Place], timer: Timer) -> Iterator[Item]:
    """PyTorch's fused kernels do in one pass what is otherwise several calls for each parameter."""
    script = subject.script
    if script is not None and not script.optimizes:
        yield "the step that is replayed ends before its optimizer's"
        return
    plain, changed = Side(subject, [*fusible]), Side(subject, [*fusible], is_fused=True)
    first, seconds = plain.first(), plain.seconds(timer)
    if seconds > _LONGEST_S:
        yield _untried(seconds)
    elif _updating(plain, timer) >= LEAST * seconds and first.updates_as(changed.first()):
        lines = [_with_option(place, type(each).__name__, "fused=True") for each, place in fusible.items()]
        for times in compare(plain, changed, seconds, timer):
            yield _entry(FUSED, [*fusible.values()], "; ".join(dict.fromkeys(lines)), _STEP, times)


def _updating(side: Side, timer: Timer) -> float:
    """Seconds of the optimizers' own part of a step, which is all that a fused one could save."""
    side.enter()
    for weight in parameters_of(side.optimizers):
        weight.grad = torch.zeros_like(weight)
    return timer(lambda: [optimizer.step() for optimizer in side.optimizers], time.process_time)


# -------------------------------------------------------------------------------------------------- channels last


def _convolutional(subject: Subject) -> list[tuple[str, Place]]:
    """What has the convolutions of images in colour, by its name in the program, and the lines that make it."""
    model = subject.model
    channels = {leaf.shape[1] for leaf in tensors(subject.batches[:1]) if is_image(leaf)}
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    is_changed = any(not layer.weight.is_contiguous() for layer in layers)
    if is_changed or channels.isdisjoint(layer.in_channels for layer in layers):
        return []
    parts = [(name, part) for name, part in model.named_children() if not set(layers).isdisjoint(part.modules())]
    if subject.script is not None:
        lines = [(name, origins.maker(part) or source.definition(type(part))) for name, part in parts]
    elif any(part in layers for _, part in parts) or len(parts) > 1:
        lines = [("self", source.definition(type(model)))]
    else:
        lines = [(f"self.{name}", origins.layer(model, part)) for name, part in parts]
    return [(name, place) for name, place in lines if place is not None]


def _try_channels_last(subject: Subject, owners: list[tuple[str, Place]], timer: Timer) -> Iterator[Item]:
    """Convolutions read images whose channels lie next to each other faster; images are converted in each step."""
    plain, changed = Side(subject), Side(subject, memory_format=torch.channels_last)
    first, seconds = plain.first(), plain.seconds(timer)
    if seconds > _LONGEST_S:
        yield _untried(seconds)
        return
    if not first.loses_as(changed.first()):
        return
    names, places = [name for name, _ in owners], [place for _, place in owners]
    code = "; ".join(f"{name}.to(memory_format=torch.channels_last)" for name in names) + ", and images likewise"
    for times in compare(plain, changed, seconds, timer):
        yield _entry(CHANNELS_LAST, places, code, _STEP, times)


# -------------------------------------------------------------------------------------------------------- workers


def _loader_line(subject: Subject) -> Place | None:
    return next((place for _, places in origins.loaders(subject, "train") for place in places[:1]), None)


def _takes_workers(loader: DataLoader) -> bool:
    """Whether a loader could have workers, and has none."""
    return (
        type(loader) is DataLoader
        and not loader.num_workers
        and bool(loader.batch_sampler and dataset_size(loader.dataset))
    )


def _try_workers(subject: Subject, loader: DataLoader, place: Place, timer: Timer) -> Iterator[Item]:
    """Two processes read batches while steps compute. Nothing that they have read before a run counts in its time."""
    order = list(islice(loader.batch_sampler or (), _NUM_READ))
    side, plain = Side(subject), _stream(loader, order, 0)
    batch = next(plain)
    side.enter()
    side.step()
    one_s, read_s = (
        min(timer(act, time.perf_counter) for _ in range(_TIMES)) for act in (side.step, lambda: next(plain))
    )
    if read_s < _READING * (read_s + one_s) or asks_model(subject, plain.__next__):
        return
    if num_cores() < _NUM_WORKERS:
        yield f"a batch takes {_ms(read_s)} ms beside a step of {_ms(one_s)}; one core cannot show what workers gain"
        return
    if read_s + one_s > _LONGEST_READ_S:
        yield _untried(read_s + one_s)
        return
    changed, again = _stream(loader, order, _NUM_WORKERS), next(_stream(loader, order, 0))
    if _is_equal(batch, again) and not _is_equal(batch, next(changed)):  # else the samples are random
        return
    number = max(2, ceil(RUN_S / (read_s + one_s)))

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


def _is_equal(one: Any, other: Any) -> bool:
    first, second = leaves(one), leaves(other)
    return first.keys() == second.keys() and all(torch.equal(first[path], second[path]) for path in first)
