"""Finds evaluations that build an autograd graph which is never used."""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torch import nn

from torchdoctor import source
from torchdoctor.evidence.evaluation import GRAPH_IN_EVAL
from torchdoctor.findings import Finding, Place
from torchdoctor.running.graph import call_before
from torchdoctor.running.record import tensors

_LEAST = 2  # calls in a row: a step may call a model twice before it goes backwards


class Evaluations:
    """Counts calls of models in evaluation mode whose results have a graph, and drops those followed by a `backward`.

    They count once a model trains again, or the script ends.
    """

    def __init__(self) -> None:
        self.models: set[nn.Module] = set()
        self.parts: set[nn.Module] = set()  # of the models
        self.has_graph = False  # whether a part of the model called now has given a result with one
        self.has_evaluated = self.has_kept = False  # at all; with a graph
        self.pending: list[Place | None] = []
        self.counts: Counter[Place | None] = Counter()

    def begin(self) -> None:
        """Starts watching modules and `torch.autograd.grad` (forces, attacks), for the rest of this process.

        Modules get no hooks of their own, which `torch.jit.script` would compile.
        """
        call_before("grad", self.forget)
        nn.modules.module.register_module_forward_hook(self._note)

    def watch(self, models: list[nn.Module]) -> None:
        """Starts watching the calls of these models."""
        self.parts |= {part for model in set(models) - self.models for part in model.modules()}
        self.models |= set(models)

    def forget(self) -> None:
        """Drops the calls so far; runs before each `backward`."""
        self.pending.clear()

    def _note(self, module: nn.Module, _: Any, output: Any) -> None:
        if module in self.parts:
            self.has_graph |= any(leaf.requires_grad for leaf in tensors(output))
        if module not in self.models:
            return
        if module.training:
            self._count()
        elif self.has_graph:
            self.has_kept = True
            self.pending.append(next(iter(source.callers(sys._getframe(1))[0]), None))
        self.has_evaluated |= not module.training
        self.has_graph = False

    def _count(self) -> None:
        self.counts.update(self.pending if len(self.pending) >= _LEAST else [])
        self.pending.clear()

    def look(self) -> Iterator[Finding | str]:
        """Yields the findings."""
        self._count()
        for place, number in self.counts.most_common(1):
            message = f"{number} calls in evaluation mode keep what a backward pass would need, and none comes"
            yield Finding(GRAPH_IN_EVAL, place, message, "with torch.no_grad():  # around the evaluation")
        if self.has_evaluated and not self.has_kept:
            yield "evaluation builds no graph"
