"""The layers of any net from its input to its head, for layer-wise learning rates."""

from collections.abc import Iterator

from torch import nn

LISTS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def layer_numbers(module: nn.Module, nets: list[nn.Module]) -> dict[int, int]:
    """Numbers the layers of a module in the order in which they are registered, 0 at the input.

    A layer is an entry of a ModuleList, Sequential or ModuleDict: a residual block, an encoder block, a convolution.
    Lists inside lists are traversed, blocks are not, whatever they contain. Each module outside of lists is a layer,
    unless it contains a list of blocks: then it is traversed as well, for example an encoder. Further:

    - A norm or a scale, which has no parameter of two dimensions, belongs to the layer before it if that is a single
      convolution or matrix, else to the layer after it: the norm after the last block belongs to the head.
    - Consecutive embeddings are one layer.
    - Parameters of a traversed module itself, such as a class token or positions, belong to layer 0.
    - A shared parameter belongs to the first layer that has it.

    Args:
        module: module with the parameters.
        nets: modules in it that are always traversed.

    Returns:
        The number of the layer, by the id of each parameter.
    """
    numbers: dict[int, int] = {}
    number, waiting, last = -1, list[nn.Module](), None
    for part in _parts(module, nets):
        if _is_scale(part) and (last is None or not _is_single(last)):
            waiting.append(part)
            continue
        joins = _is_scale(part) or (isinstance(part, nn.Embedding) and isinstance(last, nn.Embedding))
        number += not joins
        for member in [*waiting, part]:
            _number(member, max(number, 0), numbers)
        waiting, last = [], part
    for member in [*waiting, module]:  # norms without a head, then what followed modules hold themselves
        _number(member, max(number, 0) if member is not module else 0, numbers)
    return numbers


def _number(part: nn.Module, number: int, numbers: dict[int, int]) -> None:
    for parameter in part.parameters():
        numbers.setdefault(id(parameter), number)


def _parts(module: nn.Module, nets: list[nn.Module]) -> Iterator[nn.Module]:
    """The modules that stand for a layer each, norms still apart."""
    children = [child for child in module.children() if _has_parameters(child)]
    for child in children:
        is_wrapped = module in nets and len(children) == 1 and not isinstance(child, LISTS)
        if is_wrapped and any(map(_has_parameters, child.children())):
            yield from _parts(child, [*nets, child])
        elif child in nets or isinstance(child, LISTS) or (not isinstance(module, LISTS) and _has_blocks(child)):
            yield from _parts(child, nets)
        else:
            yield child


def _has_blocks(module: nn.Module) -> bool:
    """Whether one of its lists has an entry that is made of layers itself."""
    lists = (part for part in module.modules() if isinstance(part, LISTS))
    return any(
        any(map(_has_parameters, entry.children()))
        for entries in lists
        for entry in entries.children()
        if not isinstance(entry, LISTS)
    )


def _is_scale(part: nn.Module) -> bool:
    return isinstance(part, nn.LayerNorm | nn.RMSNorm) or all(parameter.ndim < 2 for parameter in part.parameters())


def _is_single(part: nn.Module) -> bool:
    return not any(map(_has_parameters, part.children()))


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None
