"""Runs steps of a module without leaving a trace in it."""

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor, nn
from torch.utils.data import Dataset

from playbook.project import is_user_file

CONTAINERS = (list, deque, dict, set, defaultdict, OrderedDict, Counter)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Restores weights, buffers, metrics, counters and lists of a module on exit, also those in its plain objects.

    What it logs meanwhile is discarded.

    A step may change weights without an optimizer: it copies one net into another, or updates a moving average.
    """
    states, inner = [], []
    weights = [(p, p.detach().clone(), p.grad, p.requires_grad) for p in module.parameters()]
    for submodule in module.modules():
        plain = [vars(value) for value in submodule.__dict__.values() if _is_plain(value)]
        for attributes in (submodule._buffers, submodule.__dict__, *plain):
            states.append((attributes, {name: (value, _copy(value)) for name, value in attributes.items()}))
            inner += [(container, container.copy()) for container in _nested(attributes)]
    _discard_logs(module)  # until the attributes are deleted below
    try:
        yield
    finally:
        for weight, value, grad, is_trained in weights:  # a step that raises may have left some of them frozen
            weight.data.copy_(value)  # unseen by graphs that a step has left
            weight.grad = grad
            weight.requires_grad_(is_trained)
        for container, content in inner:
            _refill(container, content)
        for attributes, values in states:
            for name in attributes.keys() - values.keys():
                del attributes[name]
            for name, (value, copy) in values.items():
                if isinstance(value, Tensor):
                    if value.layout == torch.strided and not torch.equal(value, copy):
                        value.data.copy_(copy)
                elif copy is not None:
                    _refill(value, copy)
                attributes[name] = value


def _discard_logs(module: nn.Module) -> None:
    """Replaces `log` and `log_dict`, as no loop is there to log for; something else of these names stays."""
    for name in ("log", "log_dict") if isinstance(module, LightningModule) else ():
        if callable(getattr(module, name)):
            setattr(module, name, lambda *_, **__: None)


def _is_plain(value: Any) -> bool:
    """Whether a value is an object of a class of the user's that is neither a module nor data."""
    is_other = isinstance(value, nn.Module | LightningDataModule | Dataset | type) or not hasattr(value, "__dict__")
    module = sys.modules.get(type(value).__module__)
    return not is_other and is_user_file(getattr(module, "__file__", None) or "<unknown>")


def _nested(container: Any) -> Iterator[Any]:
    """The containers in the containers in a container."""
    for value in _values(container):
        if type(value) in CONTAINERS:
            yield from (item for item in _values(value) if type(item) in CONTAINERS)
            yield from _nested(value)


def _values(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if type(value) in CONTAINERS else None


def _refill(container: Any, content: Any) -> None:
    """Gives a list, deque, dict or set this content in place of its own."""
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(content)
