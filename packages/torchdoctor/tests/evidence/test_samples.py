"""Samples and batches of any make as tensors by path."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from torchdoctor.evidence import samples


@dataclass
class Row:
    x: np.ndarray
    name: str


class Graph:
    """As graph libraries have it."""

    def to_dict(self) -> dict[str, Any]:
        return {"nodes": torch.ones(3), "edges": [1, 2]}


class Plain:
    def __init__(self) -> None:
        self.x, self.note = torch.ones(2), "text"


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


class Unsized(Dataset):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (torch.ones(2), {"": [1.0, 1.0]}),
        ((1, 2.5), {"0": 1, "1": 2.5}),
        ({"x": np.arange(2), "y": True}, {"x": [0, 1], "y": True}),
        ("ab", {"": [97, 98]}),
        (Row(np.zeros(1), "a"), {"x": [0.0], "name": [97]}),
        (Graph(), {"nodes": [1.0, 1.0, 1.0], "edges.0": 1, "edges.1": 2}),
        (Plain(), {"x": [1.0, 1.0]}),
        (Image.new("L", (2, 1), 7), {"": [[7, 7]]}),
        (np.array(["text"]), {}),
        (torch.ones(2).to_sparse(), {}),
        (None, {}),
    ],
)
def test_leaves(sample: Any, expected: dict[str, Any]) -> None:
    assert {path: leaf.tolist() for path, leaf in samples.leaves(sample).items()} == expected


def test_sizes() -> None:
    data = TensorDataset(torch.arange(10), torch.arange(10) * 2)
    assert samples.dataset_size(data) == 10
    assert samples.dataset_size(Endless()) is None
    assert samples.dataset_size(Unsized()) is None
    assert samples.spread_indices(data, 4) == [0, 3, 6, 9]
    assert samples.spread_indices(data, 99) == list(range(10))


def test_whole_data_sets_and_what_they_are_parts_of() -> None:
    data = TensorDataset(torch.arange(10), torch.arange(10) * 2)
    part = Subset(data, [1, 3])
    found = samples.all_samples(part)
    assert found is not None
    assert {path: values.tolist() for path, values in found.items()} == {"0": [1, 3], "1": [2, 6]}
    assert samples.all_samples(Unsized()) is None
    assert samples.underlying_dataset(ConcatDataset([part, data])) is data
