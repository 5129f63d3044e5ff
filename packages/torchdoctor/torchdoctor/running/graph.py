"""Walks the autograd graph of a tensor."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor


def maker(tensor: Tensor) -> Any:
    """The `grad_fn` of a tensor; None if it has none or cannot be asked for it."""
    return None if is_stale(tensor) else tensor.grad_fn


def is_stale(tensor: Tensor) -> bool:
    """Whether a tensor is a view made under no_grad and changed in place since: torch then refuses its `grad_fn`."""
    try:
        _ = tensor.grad_fn
    except RuntimeError:
        return True
    return False


def nodes(end: Any) -> list[Any]:
    """A node, such as the `grad_fn` of a tensor, and all nodes before it; nothing for the None of a leaf."""
    seen_nodes: dict[Any, None] = {}
    todo = [end]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen_nodes:
            seen_nodes[node] = None
            todo += [following for following, _ in node.next_functions]
    return list(seen_nodes)


def leaves(graph: Iterable[Any]) -> list[Tensor]:
    """The leaf tensors, such as weights, among these nodes."""
    return [node.variable for node in graph if hasattr(node, "variable")]


def call_before(name: Literal["backward", "grad"], act: Callable[[], None]) -> None:
    """Calls a function before each `torch.autograd.backward` or `torch.autograd.grad`, from now on in this process."""
    original = getattr(torch.autograd, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        act()
        return original(*args, **kwargs)

    setattr(torch.autograd, name, watched)
