"""Finds the network in a LightningModule, and whether a checkpoint provides its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

_restored = ContextVar("whether a checkpoint provides the weights of the nets that are being built", default=False)


@contextmanager
def restored(from_checkpoint: bool) -> Iterator[None]:
    """Nets built in this context need not load published weights if a checkpoint provides theirs."""
    token = _restored.set(from_checkpoint)
    try:
        yield
    finally:
        _restored.reset(token)


def is_restored() -> bool:
    """Whether a checkpoint will provide the weights of the net that is being built."""
    return _restored.get()


def networks(module: nn.Module) -> list[nn.Module]:
    """The module's `net`; where it has none, its children that hold parameters, so metrics and losses are left out."""
    net = getattr(module, "net", None)
    if isinstance(net, nn.Module):
        return [net]
    return [child for child in module.children() if next(child.parameters(), None) is not None]
