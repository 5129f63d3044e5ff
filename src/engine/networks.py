"""Which part of a LightningModule is the network, for callbacks that change how it computes."""

from torch import nn


def networks(module: nn.Module) -> list[nn.Module]:
    """The module's `net`; where it has none, its children that hold parameters, so metrics and losses are left out."""
    net = getattr(module, "net", None)
    if isinstance(net, nn.Module):
        return [net]
    return [child for child in module.children() if next(child.parameters(), None) is not None]
