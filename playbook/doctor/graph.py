"""Autograd's graph behind a tensor."""

from typing import Any


def nodes(end: Any) -> set[Any]:
    """A node, such as the `grad_fn` of a tensor, and all that it leads to; none for the None of a leaf."""
    found: set[Any] = set()
    todo = [end]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [following for following, _ in node.next_functions]
    return found


def leaves(graph: set[Any]) -> set[int]:
    """The tensors at which a graph of such nodes ends, as weights are, by identity."""
    return {id(node.variable) for node in graph if hasattr(node, "variable")}
