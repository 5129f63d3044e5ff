"""Values of samples through subsets and concatenations."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from playbook.data.nested import read_nested


def first_tensor(dataset: Any) -> Tensor | None:
    return dataset.tensors[0] if dataset.tensors[0].is_floating_point() else None


def test_values_follow_their_samples() -> None:
    numbers = TensorDataset(torch.arange(6.0))
    joined = ConcatDataset([Subset(numbers, [4, 1]), numbers, Subset(Subset(numbers, [5, 3, 0]), [2, 0])])
    values = read_nested(joined, first_tensor)
    assert values is not None
    assert values.tolist() == [float(sample[0]) for sample in joined]  # type: ignore[attr-defined]  # it can be iterated


def test_a_part_that_lists_none_is_none() -> None:
    lists, lists_not = TensorDataset(torch.arange(3.0)), TensorDataset(torch.arange(3))
    assert read_nested(ConcatDataset([lists, lists_not]), first_tensor) is None
    assert read_nested(Subset(lists_not, [0]), first_tensor) is None
