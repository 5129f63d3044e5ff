"""Follows weights in a recorded step to the sums of their products with values."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdoctor.running.losses import COPIES, SHAPE_ONLY
from torchdoctor.running.record import Op, Record, tensors

PRODUCTS = ("matmul", "bmm", "mm", "mv", "einsum", "tensordot", "inner", "dot")  # that are summed
TIMES = ("mul", "mul_", "multiply")
_DROPOUTS = {"dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout"}
_MASKS = {"masked_fill", "masked_fill_", "where", "nan_to_num", "nan_to_num_"}
SAME_SHAPE = frozenset(COPIES | {"detach", "type_as"} | _DROPOUTS | _MASKS)  # keep weights, or leave some of them out
_SHAPES = SHAPE_ONLY - SAME_SHAPE - {"cat", "stack", "masked_select"}
_FAILURES = (RuntimeError, IndexError, TypeError, ValueError)  # of a call that needs its own tensors


@dataclass(frozen=True)
class WeightedSum:
    """The chain of calls from weights to their sum.

    Args:
        path: calls, each with the tensor on the way that it takes and the one that it makes; those that mask weights or
            drop some at random are left out.
        values: what the weights are multiplied by; none where they are summed alone.
    """

    path: tuple[tuple[Op, Tensor, Tensor], ...]
    values: tuple[Tensor, ...] = ()

    def of_ones(self, weights: Tensor) -> Tensor | None:
        """The sum for these weights with all values 1; None if the calls cannot be repeated."""
        result = weights.detach().float().clone()  # some calls change it
        for op, taken, output in self.path:
            number = next(number for number, out in enumerate(op.outputs) if out is output)
            replaced = {id(leaf): torch.ones_like(leaf, dtype=torch.float) for leaf in self.values}
            try:
                result = tensors(op.again(replaced | {id(taken): result}))[number]
            except _FAILURES:
                return None
        return result


def weighted_sums(record: Record, weights: Tensor) -> Iterator[WeightedSum]:
    """The sums that the weights lead to; each call is visited once."""
    todo, known = [(weights, WeightedSum(()))], set()
    while todo:
        tensor, way = todo.pop()
        for op in record.takers(tensor):
            steps = _next_sums(op, tensor, way) if op not in known else []
            known.add(op)
            for output, longer in steps:
                if op.name in ("sum", *PRODUCTS):
                    yield longer
                elif output is tensor:  # some calls return the very tensor that they get, perhaps changed
                    way = longer
                else:
                    todo.append((output, longer))


def _next_sums(op: Op, tensor: Tensor, way: WeightedSum) -> list[tuple[Tensor, WeightedSum]]:
    """The outputs of a call on weights or their products, each with its chain of calls; empty if unclear."""
    others = tuple(leaf for leaf in op.inputs if leaf is not tensor)
    is_mask = op.name in SAME_SHAPE or (op.name in TIMES and all(map(is_binary, others)))
    if is_mask and all(output.shape == tensor.shape for output in op.outputs):
        return [(output, way) for output in op.outputs]
    if op.name == "sum" or (op.name in _SHAPES and op.inputs[0] is tensor):
        values = way.values
    elif op.name in (*PRODUCTS, *TIMES) and others and not way.values:
        values = others
    else:
        return []
    return [(output, WeightedSum((*way.path, (op, tensor, output)), values)) for output in op.outputs]


def is_binary(values: Tensor) -> bool:
    """Whether all values are 0 or 1, as in a mask."""
    return bool(((values == 0) | (values == 1)).all())
