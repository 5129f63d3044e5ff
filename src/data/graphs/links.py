"""Links of a graph for training, validation and test, and pairs of nodes without a link."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from playbook import split_indices
from src.data.graphs.graph import Graph

TRIES = 20  # draws of a pair without a link, before a graph counts as too dense


def divide_links(graph: Graph, val_share: float, test_share: float, seed: int, directed: bool) -> dict[str, Any]:
    """Divides the links of a graph at random.

    Args:
        graph: whose edges have both directions, unless it is directed. Loops are no links.
        val_share: share of the links for validation, at least one link.
        test_share: share for testing; 0 for none.
        seed: of the division.
        directed: whether a link has one direction.

    Returns:
        For train, val and test, pairs (2, P) and whether they are linked (P,): the links in one direction, and in val
        and test as many pairs without a link. `messages` are the edges (2, E) of training links, and loops.
    """
    source, target = graph.edges.numpy()
    is_link = source != target if directed else source < target
    links = graph.edges[:, torch.from_numpy(is_link)]  # (2, L)
    parts = split_indices(links.shape[1], [1 - val_share - test_share, val_share, test_share], seed)
    generator = np.random.default_rng(seed)
    known = _keys(graph.edges.numpy(), len(graph.features))
    divided: dict[str, Any] = {}
    for split, part in zip(("train", "val", "test"), parts, strict=True):
        pairs = links[:, part]
        if split != "train":
            pairs = torch.cat([pairs, draw_unlinked(len(graph.features), known, len(part), directed, generator)], dim=1)
        divided[split] = pairs, (torch.arange(pairs.shape[1]) < len(part)).long()
    held_out = torch.cat([links[:, parts[1]], links[:, parts[2]]], dim=1).numpy()
    both = held_out if directed else np.concatenate([held_out, held_out[::-1]], axis=1)
    is_message = ~np.isin(_keys(graph.edges.numpy(), len(graph.features)), _keys(both, len(graph.features)))
    divided["messages"] = graph.edges[:, torch.from_numpy(is_message)]
    return divided


def with_negatives(sample: tuple[dict[str, Tensor], dict[str, Any]], directed: bool) -> Any:
    """A training sample with as many pairs without a link as it has links, drawn from NumPy's global generator.

    A pair that validation or test link may be among them: training does not know of it.

    Args:
        sample: inputs, and `pairs` (2, P) with `linked` (P,).
        directed: whether a link has one direction.
    """
    inputs, target = sample
    num_nodes = int(inputs["num_nodes"])
    known = _keys(inputs["edges"].numpy(), num_nodes)
    generator = np.random.default_rng(np.random.randint(2**31))
    negatives = draw_unlinked(num_nodes, known, target["pairs"].shape[1], directed, generator)
    linked = torch.cat([target["linked"], torch.zeros(negatives.shape[1], dtype=torch.int64)])
    return inputs, {"pairs": torch.cat([target["pairs"], negatives], dim=1), "linked": linked}


def draw_unlinked(
    num_nodes: int, known: np.ndarray, count: int, directed: bool, generator: np.random.Generator
) -> Tensor:
    """Draws different pairs of different nodes that are not linked; fewer in a graph that is too dense.

    Args:
        num_nodes: N.
        known: linked pairs, as source · N + target, in both directions if a link has two.
        count: number of pairs P.
        directed: whether a pair has a direction.
        generator: of the random numbers.

    Returns:
        (2, P).
    """
    drawn = np.empty(0, dtype=np.int64)
    for _ in range(TRIES):
        pairs = generator.integers(num_nodes, size=(2, 2 * (count - len(drawn)) + 8))
        pairs = pairs if directed else np.sort(pairs, axis=0)
        keys = _keys(pairs, num_nodes)[pairs[0] != pairs[1]]
        keys = keys[~np.isin(keys, known)]
        _, first = np.unique(np.concatenate([drawn, keys]), return_index=True)
        drawn = np.concatenate([drawn, keys])[np.sort(first)][:count]
        if len(drawn) == count:
            break
    return torch.from_numpy(np.stack([drawn // num_nodes, drawn % num_nodes]))


def _keys(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    return edges[0] * num_nodes + edges[1]
