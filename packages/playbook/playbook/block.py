"""Finds the blocks of a net: what is sharded, or recomputed, one at a time."""

from collections.abc import Iterator

from torch import nn


def blocks(net: nn.Module) -> dict[str, nn.Module]:
    """The elements of a net's outermost lists (ModuleList, Sequential), by name, each once.

    What is inside of a block belongs to it: the Sequential of its MLP, or of its shortcut, is not looked into. Two
    kinds of elements hold blocks rather than being one, so their lists are read instead:

    - a Sequential whose elements all have layers inside: the stages of a ResNet, ConvNeXt or Swin Transformer;
    - a module with more than half of the net's parameters and such a list inside: the backbone in
      `Sequential(backbone, head)`. As one block, it would save less than half of the memory.

    An element without `forward`, as a ModuleDict or a ModuleList in a list, cannot be a block, as it is never called.

    Args:
        net: any module, also one that holds nets.
    """
    most = sum(parameter.numel() for parameter in net.parameters()) / 2
    names: dict[nn.Module, str] = {}
    for name, block in _elements(net, "", most):
        names.setdefault(block, name)
    return {name: block for block, name in names.items()}


def has_forward(module: nn.Module) -> bool:
    """Whether a module can be called; containers such as ModuleList and ModuleDict cannot."""
    return type(module).forward is not nn.Module.forward


def _elements(module: nn.Module, prefix: str, most: float) -> Iterator[tuple[str, nn.Module]]:
    is_list = isinstance(module, nn.Sequential | nn.ModuleList)
    for key, child in module.named_children():
        name = f"{prefix}{key}"
        if is_list and has_forward(child) and not _is_stage(child) and not _is_backbone(child, most):
            yield name, child
        else:
            yield from _elements(child, f"{name}.", most)


def _is_stage(module: nn.Module) -> bool:
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return False
    elements = [element for element in module if any(True for _ in element.parameters())]
    return bool(elements) and all(any(True for _ in element.children()) for element in elements)


def _is_backbone(module: nn.Module, most: float) -> bool:
    if sum(parameter.numel() for parameter in module.parameters()) <= most:
        return False
    return any(any(True for _ in block.children()) for _, block in _elements(module, "", most))
