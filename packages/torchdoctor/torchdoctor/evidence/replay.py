"""Re-runs the data setup line by line to find the first line after which a condition holds."""

import inspect
import random
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.evidence.arrays import as_array, nested_values
from torchdoctor.evidence.samples import loader_owner
from torchdoctor.findings import Place
from torchdoctor.running.subject import Subject
from torchdoctor.source import callers, is_user

_TIMES = 4  # a line is looked at so often: what a loop makes, its first rounds show

See = Callable[[Place, dict[str, Any]], bool]


class _Stop(BaseException):
    """Raised to leave the user's code."""


def trace_lines(run: Callable[[], Any], see: See, limit_s: float = 3.0, times: int = _TIMES) -> None:
    """Runs a function and calls `see` after each of the user's lines with the variables there.

    Args:
        run: may raise what it likes.
        see: gets the line and the local variables and attributes of self by name; the result of a function is
            "return". It ends the run by returning True.
        limit_s: ends the run.
        times: how often a line is looked at.
    """
    deadline, counts, failed = time.monotonic() + limit_s, dict[tuple[CodeType, int, str], int](), list[Exception]()

    def after(frame: FrameType, line: int, event: str, result: Any) -> None:  # pragma: no cover - not traced itself
        if time.monotonic() > deadline:
            raise _Stop
        key = (frame.f_code, line, event)  # a comprehension comes by its line often before that returns
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > times:
            return
        values = _values(frame) | ({} if event == "line" or result is None else {"return": result})
        try:
            stop = see(Place(frame.f_code.co_filename, line), values)
        except Exception as error:  # ours, which the user's code must not catch
            failed.append(error)
            raise _Stop from error
        if stop:
            raise _Stop

    def enter(frame: FrameType, event: str, _: Any) -> Any:  # pragma: no cover - a tracer is not traced
        if event != "call" or not is_user(frame.f_code.co_filename):
            return None
        previous = [0]

        def step(frame: FrameType, event: str, result: Any) -> Any:
            if event in ("line", "return") and previous[0]:
                after(frame, previous[0], event, result)
            previous[0] = frame.f_lineno
            return step

        return step

    old = sys.gettrace()
    sys.settrace(enter)
    try:
        run()
    except (_Stop, Exception):  # noqa: S110 - what the user's code raises shows elsewhere; here only values count
        pass
    finally:
        sys.settrace(old)
    if failed:
        raise failed[0]


def first_draw(run: Callable[[], Any]) -> tuple[Place, ...]:
    """The first line that draws random numbers, and its callers, innermost first."""

    def states() -> tuple[Any, ...]:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before, stack = states(), list[Place]()

    def see(place: Place, _: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        if states() != before:
            stack.extend([place, *callers(sys._getframe(1))[0][1:]])
        return bool(stack)

    trace_lines(run, see)
    return tuple(stack)


def _values(frame: FrameType) -> dict[str, Any]:  # pragma: no cover - a tracer is not traced
    values = {name: value for name, value in frame.f_locals.items() if name != "self"}
    own = frame.f_locals.get("self")
    if own is not None and not isinstance(own, nn.Module) and hasattr(own, "__dict__"):
        values |= {f"self.{name}": value for name, value in vars(own).items() if name[0] != "_"}
    return values


def rebuild_data(subject: Subject, index: int | None = 0) -> Callable[[], Any]:
    """A function that rebuilds the data module if it needs no arguments, sets it up and reads one sample."""

    def run() -> None:
        pl.seed_everything(0, verbose=False)
        data = loader_owner(subject)
        if isinstance(data, pl.LightningDataModule):
            if _needs_nothing(type(data)):
                fresh = type(data)()
                fresh.trainer = data.trainer
                data = fresh
            data.setup("fit")
        loader = data.train_dataloader()
        if index is not None and hasattr(loader, "dataset"):
            batch = [loader.dataset[index]]
            if loader.collate_fn is not None and loader.batch_size is not None:
                loader.collate_fn(batch)

    return run


def _needs_nothing(cls: type) -> bool:
    try:
        return inspect.signature(cls).bind() is not None
    except TypeError:
        return False


def first_line(
    subject: Subject,
    holds: Callable[[np.ndarray, Any], bool],
    index: int | None = 0,
    run: Callable[[], Any] | None = None,
) -> Place | None:
    """The first line after which a value satisfies a condition, while the data are built and one sample is read.

    Args:
        subject: whose data it is.
        holds: gets each value as an array, and as it is.
        index: of the sample.
        run: what to look at instead of making the data.
    """
    places: list[Place] = []

    def see(place: Place, values: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        for value in nested_values(values.values()):
            seen = as_array(value)
            if seen is not None and holds(seen, value):
                places.append(place)
                return True
        return False

    trace_lines(run or rebuild_data(subject, index), see)
    return places[0] if places else None


def first_tensor_line(subject: Subject, holds: Callable[[np.ndarray, Any], bool]) -> Place | None:
    """The first line after which a tensor, or else another array, satisfies a condition."""
    return first_line(subject, lambda array, value: isinstance(value, Tensor) and holds(array, value)) or first_line(
        subject, holds
    )
