"""Batches of every make are shortened to their first samples."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchdoctor.running.batches import first_positions, first_samples, num_samples


@dataclass
class Pair:
    x: Tensor
    names: list[str]


class Named(NamedTuple):
    x: Tensor
    y: Tensor


X, Y = torch.arange(24.0).reshape(8, 3), torch.arange(8)


def shape(batch: Any) -> Any:
    """Tensors by their shapes."""
    return pytree.tree_map_only(Tensor, lambda leaf: tuple(leaf.shape), batch)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (X, (2, 3)),
        ([X, Y], [(2, 3), (2,)]),
        ({"x": X, "name": list("abcdefgh"), "epoch": 3}, {"x": (2, 3), "name": ["a", "b"], "epoch": 3}),
        ((X, [{"boxes": torch.zeros(n, 4)} for n in range(8)]), ((2, 3), [{"boxes": (0, 4)}, {"boxes": (1, 4)}])),
        (([X[0]] * 8, [{"boxes": X}] * 8), ([(3,)] * 2, [{"boxes": (8, 3)}] * 2)),
        (Named(X, Y), Named((2, 3), (2,))),  # type: ignore[arg-type]  # shapes in place of tensors
        ((X, torch.tensor(0.5)), ((2, 3), ())),
        ((X, torch.zeros(2, 30)), None),  # a graph's nodes and edges
        (3, None),
    ],
)
def test_first(batch: Any, expected: Any) -> None:
    assert shape(first_samples(batch, 2)) == expected


def test_first_of_a_dataclass() -> None:
    cut = first_samples(Pair(X, list("abcdefgh")), 2)
    assert cut.x.shape == (2, 3)
    assert cut.names == ["a", "b"]


def test_num_samples() -> None:
    assert num_samples((X, Y)) == 8
    assert num_samples((X, torch.zeros(2, 30))) is None
    assert num_samples((X, torch.tensor(1.0))) is None


def test_sequences_are_cut_where_all_tensors_have_positions() -> None:
    tokens = torch.arange(24).reshape(2, 12)
    assert shape(first_positions({"tokens": tokens, "mask": tokens > 3, "y": torch.ones(2)}, 4)) == {
        "tokens": (2, 4),
        "mask": (2, 4),
        "y": (2,),
    }
    assert first_positions(tokens, 12) is None
    assert first_positions((tokens, torch.ones(2, 3)), 4) is None
    assert first_positions(torch.rand(2, 12), 4) is None
