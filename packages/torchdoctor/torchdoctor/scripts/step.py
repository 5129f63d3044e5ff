"""Replays a script's training step, with or without its optimizers."""

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchdoctor.running import sandbox
from torchdoctor.running.machine import load_factor
from torchdoctor.running.training import parameters_of, weights_of
from torchdoctor.scripts import notes
from torchdoctor.scripts.notes import Backward, Loading
from torchdoctor.scripts.silence import silenced
from torchdoctor.scripts.unit import Leave, Unit

_EVENTS_S, _PAUSE_S = 20.0, 3.0  # for a step; without an event, after which the script evaluates or prints
_POLL_S = 0.1

Event = int | None  # None for `backward`, the number of an optimizer for its step


class Step:
    """A script's training step.

    Args:
        unit: its statements.
        leaves: parameters that its first loss depends on.
    """

    def __init__(self, unit: Unit, leaves: list[Tensor]) -> None:
        self.unit = unit
        self.leaves, self.living_optimizers = leaves, notes.living_objects(Optimizer)
        self.others: list[nn.Module] = []  # networks that it may use, and does not train
        self.things: list[Any] = [*self.living_optimizers, *notes.living_objects(LRScheduler)]
        events, self.emptied = _events(unit, self.things)
        self.num_losses = events.count(None)
        self.num_events = len(events)
        self.num_to_backward = max((count for count, event in enumerate(events, 1) if event is None), default=0)
        self.optimizers = [self.things[number] for number in dict.fromkeys(events) if number is not None]
        self.optimizes = bool(self.optimizers)
        if not self.optimizers:  # the step is a closure, or a part of an accumulation
            used = set(map(id, leaves))
            of_loss = [optimizer for optimizer in self.living_optimizers if used & weights_of(optimizer)]
            self.optimizers = of_loss or self.living_optimizers  # the loss may reach no weight of a network

    @property
    def owned(self) -> list[Tensor]:
        """The parameters whose gradients the script may read, also where its optimizers replaced them."""
        return [*self.leaves, *parameters_of(self.living_optimizers)]

    def losses(self, batch: Any, index: int) -> list[Tensor]:
        """The losses that the step calls `backward` on; nothing is optimised, gradients are zero."""
        losses: list[Tensor] = []

        def note(loss: Tensor, gradient: Any = None, *_: Any, **__: Any) -> None:
            losses.append(loss if gradient is None else (loss * gradient).sum())
            _fill(without)
            event()

        without = _without_gradient(self.owned)
        event = self._counting()
        try:
            with silenced(self.things, note, event):
                self._run(batch, index)
        finally:
            _fill(without, is_zero=False)
        return losses

    def ending_backwards(self) -> Any:
        """A context in which a run ends at its last `backward`, before later lines write into weights."""
        return mock.patch.object(self, "num_events", self.num_to_backward)

    def skip(self, *_: Any, **__: Any) -> None:
        """Replaces `backward`: gives parameters zero gradients, which a script may read."""
        Loading.num_quiet = 0
        _fill(_without_gradient(self.owned))

    def optimize(self, batch: Any, index: int, backward: Callable[..., None]) -> None:
        """Runs the step with its own optimizers, and calls `backward` with each loss and torch's arguments."""

        def really(loss: Tensor, gradient: Any = None, retain_graph: Any = None, *_: Any, **__: Any) -> None:
            Backward.act = Backward.original
            try:
                backward(loss, gradient=gradient, retain_graph=retain_graph)
            finally:
                Backward.act = really
            event()

        event = self._counting()
        with silenced(self.things, really, event, real=True):
            self._run(batch, index)
        _fill(parameters_of(self.things[number] for number in self.emptied), is_zero=False)  # by what comes after

    def validate(self, unit: Unit, batch: Any, index: int = 0) -> None:
        """Runs a validation step of the script without optimizing anything."""
        trained = [parameter for parameter in self.owned if parameter.requires_grad]
        with torch.set_grad_enabled(unit.gradients), silenced(self.things, lambda *_, **__: None, lambda _: None):
            try:
                unit.run(batch, index)
            finally:
                with torch._C.DisableTorchFunction():  # this is no call of the script's
                    for parameter in trained:
                        parameter.requires_grad_()

    def _run(self, batch: Any, index: int) -> None:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # this is no call of the script's
            seed = int(torch.randint(2**32, ()))  # whoever seeds torch means all of these; steps differ
        random.seed(seed)
        np.random.seed(seed)
        with suppress(Leave):
            self.unit.run(batch, index)

    def _counting(self) -> Callable[..., None]:
        """A function that ends the step at its last event, before later lines evaluate and print."""
        turns = count(1)

        def event(_: Any = None) -> None:
            if next(turns) == self.num_events:
                raise Leave

        return event


def _without_gradient(parameters: Sequence[Tensor]) -> list[Tensor]:
    with torch._C.DisableTorchFunction():  # this is no call of the script's
        return [parameter for parameter in parameters if parameter.grad is None]


def _fill(parameters: list[Tensor], is_zero: bool = True) -> None:
    """Sets the parameters' gradients to zeros, or to None."""
    with torch._C.DisableTorchFunction():
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if is_zero else None


def _events(unit: Unit, things: list[Any]) -> tuple[list[Event], list[int]]:
    """The events of a step: of a usual one, or of the loop's first if only that steps all optimizers."""
    limit_s = _EVENTS_S * load_factor()
    try:
        usual = sandbox.call(lambda: _watched(unit, things), limit_s)
    except sandbox.SandboxError:
        if not unit.loaders or unit.turn == 0:
            raise
        unit.turn = 0  # which may begin what later ones add to
        return _events(unit, things)
    unused = [number for number, thing in enumerate(things) if isinstance(thing, Optimizer) and number not in usual[0]]
    if unit.loaders and unused:
        unit.turn = 0
        first = sandbox.call(lambda: _watched(unit, things), limit_s)
        if len(set(first[0])) > len(set(usual[0])):
            return first
        unit.turn = None
    return usual


def _watched(unit: Unit, things: list[Any]) -> tuple[list[Event], list[int]]:
    """The events of one real run of a step, until it ends, fails or stalls.

    Returns:
        What happened, and the numbers of optimizers that stepped and whose gradients are zeroed then.
    """
    events: list[Event] = []
    numbers = {id(thing): number for number, thing in enumerate(things)}
    start = time.monotonic()

    def note(event: Event) -> None:
        events.append(event)
        signal.setitimer(signal.ITIMER_REAL, max(_PAUSE_S, 2 * (time.monotonic() - start)), _POLL_S)

    def backward(*args: Any, **kwargs: Any) -> None:
        Backward.original(*args, **kwargs)
        note(None)

    def leave(*_: Any) -> None:
        raise Leave

    signal.signal(signal.SIGALRM, leave)
    try:
        with silenced(things, backward, lambda optimizer: note(numbers[id(optimizer)]), real=True):
            unit.run(unit.first_batch())
    except BaseException:  # of the script, or because it was left
        if None not in events:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    stepped = [number for number in dict.fromkeys(events) if number is not None]
    emptied = [number for number in stepped if not any(map(_has_gradient, parameters_of([things[number]])))]
    return events or [None], emptied


def _has_gradient(parameter: Tensor) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())
