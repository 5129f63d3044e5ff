"""The stages of any net, from its head to its stem, for training them one after another."""

from torch import nn

FEWEST_STAGES = 5  # where the net has as many layers


def parameter_stages(net: nn.Module, head: nn.Module | None = None) -> list[list[nn.Parameter]]:
    """Splits a net into lists of parameters, head first, in the reverse order in which its layers are registered.

    The stages are the net's outermost modules; the largest are split into their layers until there are five stages, but
    no block of a list of blocks is split. Norms and scales, which have no parameter of more than one dimension, belong
    to the stage of the layer before them.
    Parameters of the net itself, such as a class token, belong to the last stage. A parameter that several layers
    share belongs to the first stage that has it. Every parameter is in exactly one stage.

    Args:
        net: any module.
        head: the part of it that is the first stage. Defaults to the outermost module registered last.
    """
    parts = _weighted(net)
    while len(parts) == 1 and (inner := _weighted(parts[0])):  # a wrapper
        parts = inner
    whole = {head} if head is not None else set(*_groups(parts)[-1:])
    while len(groups := _groups(parts)) < FEWEST_STAGES:
        largest = max((part for part in parts if part not in whole and _weighted(part)), key=_size, default=None)
        if largest is None:
            break
        layers, position = _weighted(largest), parts.index(largest)
        split = [*parts[:position], *layers, *parts[position + 1 :]]
        if len(_groups(split)) == len(groups) and not any(map(_weighted, layers)):
            whole.add(largest)  # a convolution and its norm are one stage
            continue
        parts = split
        if isinstance(largest, nn.Sequential | nn.ModuleList):
            whole.update(layers)  # a block is one stage
    stages: list[list[nn.Parameter]] = []
    assigned: set[nn.Parameter] = set()
    for group in [[head] if head is not None else [], *reversed(groups), [net]]:
        parameters = [parameter for part in group for parameter in part.parameters()]
        stages.append([parameter for parameter in dict.fromkeys(parameters) if parameter not in assigned])
        assigned.update(parameters)
    rest = stages.pop()  # parameters of the net itself
    stages = [stage for stage in stages if stage] or [[]]
    stages[-1].extend(rest)
    return [stage for stage in stages if stage]


def _weighted(module: nn.Module) -> list[nn.Module]:
    """The children that have parameters."""
    return [child for child in module.children() if _size(child)]


def _groups(parts: list[nn.Module]) -> list[list[nn.Module]]:
    """Parts that make a stage together: a layer and the norms that follow it."""
    groups: list[list[nn.Module]] = []
    for part in parts:
        if groups and all(parameter.ndim <= 1 for parameter in part.parameters()):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
