"""Describes a softmax in a recorded step: its axis, its scores, and the sums that it weighs."""

from functools import cached_property

import torch
from torch import Tensor

from torchdoctor.evidence.weighted_sums import PRODUCTS, SAME_SHAPE, TIMES, WeightedSum, weighted_sums
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import CONVOLUTIONS, Op
from torchdoctor.running.steps import Step

_SCALES = {"add", "add_", "sub", "sub_", "__rsub__", "neg", "mul", "mul_", "div", "div_"}
_SQUASHES = {"clamp", "tanh", "relu", "leaky_relu", "elu"}
_BETWEEN = SHAPE_ONLY | SAME_SHAPE | _SCALES | _SQUASHES  # a comparison and the softmax of its scores
_EXACT = 1e-3  # in single precision, sums of weights differ from 1 by 1e-6; over another axis by 0.1 and more


class Softmax:
    """One call of softmax.

    Args:
        step: that made the call.
        op: the call.
    """

    def __init__(self, step: Step, op: Op) -> None:
        self.step, self.op = step, op
        self.scores: Tensor = op.argument(0, "input")
        self.shape = self.scores.shape  # that of the result may be changed in place
        num_axes, axis = len(self.shape), op.argument(1, "dim")
        implicit = 0 if num_axes in (0, 1, 3) else 1  # as F.softmax chooses it
        self.axis: int = (implicit if axis is None else axis) % max(num_axes, 1)
        self.others = [other for other, length in enumerate(self.shape) if other != self.axis and length > 1]

    @cached_property
    def sums(self) -> list[WeightedSum]:
        """The weighted sums of values that use the result."""
        return [item for item in self._all_sums if item.values]

    @property
    def own_sums(self) -> list[WeightedSum]:
        """The plain sums of the result."""
        return [item for item in self._all_sums if not item.values]

    @cached_property
    def _all_sums(self) -> list[WeightedSum]:
        return list(weighted_sums(self.step.record, self.op.out))

    def adds_up(self, item: WeightedSum, axis: int) -> bool:
        """Whether the weights of a sum add up to 1 with the softmax over this axis, for any scores."""
        scores = torch.randn(self.shape, generator=torch.Generator().manual_seed(0))
        totals = item.of_ones(scores.softmax(axis))
        return totals is not None and bool(((totals - 1).abs() < _EXACT).all())

    def compares(self) -> bool:
        """Whether the scores compare pairs from data, as q · k, or come from a layer with one output.

        None of their axes is made of a layer's outputs then: they are samples, heads, queries or keys.
        """
        todo, known = [self.scores], set()
        while todo:
            for maker in self.step.record.makers(todo.pop()):  # some return the very tensor that they get
                if maker in known:
                    continue
                known.add(maker)
                if self._is_comparison(maker):
                    return True
                if maker.name in _BETWEEN:
                    todo += maker.inputs
        return False

    def _is_comparison(self, op: Op) -> bool:
        is_data = self.step.is_from_data
        if op.name == "sum":
            product = self.step.record.producer(op.inputs[0])
            return product is not None and product.name in TIMES and all(map(is_data, product.inputs))
        if op.name == "linear":
            return len(op.inputs[1]) == 1 and is_data(op.inputs[0])
        if op.name in CONVOLUTIONS:
            return op.outputs[0].shape[-1 - CONVOLUTIONS[op.name]] == 1 and is_data(op.inputs[0])
        if op.name not in PRODUCTS:
            return False
        learned = [leaf for leaf in op.inputs if not is_data(leaf)]
        is_vector = all(leaf.dim() == 1 or (leaf.shape[-1] == 1 and leaf is op.inputs[-1]) for leaf in learned)
        return len(learned) < len(op.inputs) and is_vector
