"""Finds the batches of a step: from its loaders, or in the variables that it reads."""

import ast
from collections.abc import Callable
from itertools import islice
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor.running.record import Record, tensors
from torchdoctor.running.unregistered import is_plain
from torchdoctor.scripts.unit import Unit, names


def batches_of(unit: Unit, number: int, run: Callable[[], object]) -> DataLoader | list[Any]:
    """The step's loader, or a list of its first batches; empty if it reads no tensors.

    Args:
        unit: of the step.
        number: of batches in a list, at most.
        run: runs the step on its variables.
    """
    if len(unit.loaders) == 1:
        return unit.loaders[0]
    if unit.loaders:
        return list(islice(zip(*unit.loaders, strict=False), number))
    with Record() as record:
        run()
    used = {id(tensor) for op in record.ops for tensor in op.inputs}
    own = unit.carried | unit.assigned
    read = [name for name in names(unit.after, ast.Load) if name not in own and _is_data(unit.value(name))]
    read = [name for name in read if not used.isdisjoint(map(id, tensors(unit.value(name))))]
    if not read:
        return []
    head = [unit.spot.loop.target] if isinstance(unit.spot.loop, ast.For) else []
    fetched = set(names([*unit.before, *head], ast.Store))
    beside = [name for name in names(unit.after, ast.Load) if name in fetched and _is_sample(unit.value(name))]
    batch = {name: unit.value(name) for name in dict.fromkeys([*read, *beside])}
    return [batch, *(unit.fetched([*batch], number - 1) if fetched.intersection(read) else [])]


def _is_sample(value: Any) -> bool:
    """Whether a value without tensors may belong to a sample, as a tree or a list of words."""
    parts = pytree.tree_leaves(value) if isinstance(value, list | tuple | dict) else [value]
    return all(isinstance(part, str | int | float) or is_plain(part) for part in parts)


def _is_data(value: Any) -> bool:
    leaves = tensors(value) if isinstance(value, Tensor | list | tuple | dict) else []
    return bool(leaves) and not any(isinstance(leaf, nn.Parameter) or leaf.requires_grad for leaf in leaves)
