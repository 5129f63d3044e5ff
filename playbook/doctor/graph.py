"""Autograd's graph behind a tensor."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor


def nodes(end: Any) -> list[Any]:
    """A node, such as the `grad_fn` of a tensor, and all that it leads to; none for the None of a leaf."""
    found: dict[Any, None] = {}
    todo = [end]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found[node] = None
            todo += [following for following, _ in node.next_functions]
    return list(found)


def leaves(graph: Iterable[Any]) -> list[Tensor]:
    """The tensors at which a graph of such nodes ends, as weights are."""
    return [node.variable for node in graph if hasattr(node, "variable")]
