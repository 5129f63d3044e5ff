"""Finds the network in a LightningModule, whether a checkpoint provides its weights, and what stands in for it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lightning.pytorch import Callback
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


def evaluation_net(net: nn.Module, callbacks: Iterable[Callback]) -> nn.Module:
    """What takes the net's place where a trained model is used: the net inside of what callbacks put around it.

    Args:
        net: with its weights.
        callbacks: of the run; those that have a method `evaluation_net(net)` wrap it, in their order.
    """
    for callback in callbacks:
        wrap: Callable[[nn.Module], nn.Module] | None = getattr(callback, "evaluation_net", None)
        net = net if wrap is None else wrap(net)
    return net
