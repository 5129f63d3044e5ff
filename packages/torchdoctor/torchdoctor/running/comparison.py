"""Two sides of a program, as it is and changed, whose training steps are timed in turns."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from torchdoctor.running.subject import Subject
from torchdoctor.running.training import leave_out_dropout, parameters_of, step

LEAST = 0.1  # of the time that a change must save
RUN_S = 0.008  # of a run, which takes several steps where they are short
_PAIRS, _WINS = 10, 8  # alternating runs, and those of them in which a change must save that
_CLOSE = 1e-3  # of a loss, or of what a step changes

Timer = Callable[[Callable[[], Any], Callable[[], float]], float]  # gets what to run, and a clock
Gain = tuple[float, float]  # seconds without and with a change


def measure(act: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds that a function takes."""
    start = clock()
    act()
    return clock() - start


@dataclass
class Side:
    """One side of a comparison: a program with weights and optimizer states of its own.

    Args:
        subject: whose steps run.
        optimizers: whose step one kernel may do.
        is_fused: whether it does.
        memory_format: of weights and images, where it is not theirs.
    """

    subject: Subject
    optimizers: list[Optimizer] = field(default_factory=list)
    is_fused: bool = False
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
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["fused"] = True if self.is_fused else None

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
        return leaf.to(memory_format=self.memory_format) if is_image(leaf) else leaf

    def seconds(self, timer: Timer) -> float:
        """Of a step."""
        self.enter()
        return timer(self.step, time.process_time)

    def first(self) -> "First":
        """A first step without dropout, which no seed makes the same in another memory format."""
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(0)
        self.enter()
        with self.subject.unchanged():
            leave_out_dropout(self.subject.model)
            before = [weight.detach().clone() for weight in self.weights]
            loss = self.step()
            return First(loss, before, [weight.detach().clone() for weight in self.weights])


class First(NamedTuple):
    """The loss of a step, and the weights before and after it."""

    loss: float | None
    before: list[Tensor]
    after: list[Tensor]

    def loses_as(self, other: "First") -> bool:
        """Whether the losses are the same."""
        if self.loss is None or other.loss is None:
            return False
        return abs(self.loss - other.loss) <= _CLOSE * abs(self.loss)

    def updates_as(self, other: "First") -> bool:
        """Whether this step has changed weights, and another one in the same way."""
        is_changed = False
        for before, one, two in zip(self.before, self.after, other.after, strict=True):
            moved = float((one - before).abs().max()) if before.numel() else 0.0
            is_changed |= moved > 0
            if not torch.allclose(one, two, rtol=1e-5, atol=_CLOSE * moved):
                return False
        return is_changed


def compare(plain: Side, changed: Side, seconds: float, timer: Timer) -> Iterator[Gain]:
    """Seconds of a step of both sides where the change gains; a step of the first takes about so many."""
    number = max(1, ceil(RUN_S / seconds)) if seconds else 1

    def run(side: Side) -> float:
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
        losses = sum(after > (1 - LEAST) * before for before, after in pairs)
        if losses > _PAIRS - _WINS:
            return
    before, after = (median(times) for times in zip(*pairs, strict=True))
    if after <= (1 - LEAST) * before:
        yield before, after


def is_image(leaf: Tensor) -> bool:
    """Whether a tensor may be images in colour, or what has more channels, (N, C, H, W)."""
    return leaf.layout == torch.strided and leaf.dim() == 4 and leaf.is_floating_point() and leaf.shape[1] >= 3
