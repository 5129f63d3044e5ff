"""Autograd's graph behind a tensor."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor


def maker(tensor: Tensor) -> Any:
    """The `grad_fn` of a tensor; None if it has none, or is stale."""
    return None if is_stale(tensor) else tensor.grad_fn


def is_stale(tensor: Tensor) -> bool:
    """Whether a tensor is a view that was made without gradients and changed since, so that torch tells no graph."""
    try:
        _ = tensor.grad_fn
    except RuntimeError:
        return True
    return False


def nodes(end: Any) -> list[Any]:
    """A node, such as the `grad_fn` of a tensor, and all that it leads to; none for the None of a leaf."""
    seen_nodes: dict[Any, None] = {}
    todo = [end]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen_nodes:
            seen_nodes[node] = None
            todo += [following for following, _ in node.next_functions]
    return list(seen_nodes)


def leaves(graph: Iterable[Any]) -> list[Tensor]:
    """The tensors at which a graph of such nodes ends, as weights are."""
    return [node.variable for node in graph if hasattr(node, "variable")]


def call_before(name: Literal["backward", "grad"], act: Callable[[], None]) -> None:
    """From now on in this process, calls a function before each `torch.autograd.backward` or `torch.autograd.grad`."""
    original = getattr(torch.autograd, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    setattr(torch.autograd, name, watched)
