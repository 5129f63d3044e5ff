"""Restores a module after trial steps."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from torchdoctor.running.unregistered import is_plain

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
        plain = [vars(value) for value in submodule.__dict__.values() if is_plain(value)]
        for attributes in (submodule._buffers, submodule.__dict__, *plain):
            states.append((attributes, {name: (value, _copy(value)) for name, value in attributes.items()}))
            inner += [(container, container.copy()) for container in _nested(attributes)]
    if isinstance(module, LightningModule):
        log_nothing(module)  # until it is deleted below
    try:
        yield
    finally:
        for weight, value, grad, is_trained in weights:  # a step that raises may have left some of them frozen
            weight.data.copy_(value)  # unseen by graphs that a step has left
            weight.grad = grad
            weight.requires_grad_(is_trained)
        for container, content in inner:
            refill(container, content)
        for attributes, values in states:
            for name in attributes.keys() - values.keys():
                del attributes[name]
            for name, (value, copy) in values.items():
                if isinstance(value, Tensor):
                    if value.layout == torch.strided and not torch.equal(value, copy):
                        value.data.copy_(copy)
                elif copy is not None:
                    refill(value, copy)
                attributes[name] = value


@contextmanager
def modes_restored(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Restores the training mode of each of these modules on exit, without calling their `train`."""
    modes = {module: module.training for module in modules}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def log_nothing(module: LightningModule) -> None:
    """Makes a module's `log` callable outside of a Trainer loop."""
    redirect_logs(module, lambda *_, **__: None, lambda *_, **__: None)


def redirect_logs(module: LightningModule, log: Callable[..., None], log_dict: Callable[..., None]) -> None:
    """Replaces a module's `log` and `log_dict`, if they are methods."""
    for name, method in (("log", log), ("log_dict", log_dict)):
        if callable(getattr(module, name)):
            setattr(module, name, method)


def _nested(container: Any) -> Iterator[Any]:
    """Containers nested inside the containers of a container."""
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


def refill(container: Any, content: Any) -> None:
    """Replaces the content of a list, deque, dict or set."""
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(content)
