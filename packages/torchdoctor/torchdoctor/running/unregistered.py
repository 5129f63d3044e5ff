"""Finds tensors in plain module attributes, which are neither parameters, buffers nor submodules."""

from collections.abc import Iterator
from functools import partial
from types import CellType, FunctionType
from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from torchdoctor import source

_FRAMEWORK = {*vars(nn.Module()), "_hparams_initial"}  # _parameters, _modules, …; the copy by save_hyperparameters
_DEPTH = 4  # of lists in partial calls in objects that are looked into


def plain_attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """A module's own attributes, without those of nn.Module; modules there were hidden on purpose."""
    for name, value in vars(module).items():
        if name not in _FRAMEWORK and not isinstance(value, nn.Module):
            yield name, value


def unregistered_tensors(value: Any, depth: int = _DEPTH) -> Iterator[Tensor]:
    """Tensors, and parameters of modules, inside a value: in containers, partials, closures and the user's objects."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, nn.Module):
            yield from nn.Module.parameters(leaf)
        elif depth:
            yield from unregistered_tensors(_contents(leaf), depth - 1)


def is_plain(value: Any) -> bool:
    """Whether a value is an instance of a user's class that is neither a module nor data."""
    is_other = isinstance(value, nn.Module | pl.LightningDataModule | Dataset | type) or not hasattr(value, "__dict__")
    return not is_other and bool(source.classes_of(value))


def _contents(value: Any) -> Any:
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return [cells, value.__defaults__, value.__kwdefaults__]
    if isinstance(value, set):
        return list(value)
    return dict(vars(value)) if is_plain(value) else ()
