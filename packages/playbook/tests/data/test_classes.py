"""Classes of samples from what data sets list, and orders that take every class equally often."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from playbook.data.classes import balanced_order, count_classes, targets_of


class Listed(Dataset):
    """Three samples that must not be loaded."""

    def __init__(self, **lists: Any) -> None:
        for name, entries in lists.items():
            setattr(self, name, entries)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError(f"loaded {index}")


TABLE = TensorDataset(torch.zeros(3, 2), torch.tensor([2, 0, 2]))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Listed(targets=[0, 1, 1]), [0, 1, 1]),
        (Listed(targets=torch.tensor([2, 0, 1])), [2, 0, 1]),
        (Listed(labels=np.array([1, 1, 0], dtype=np.uint8)), [1, 1, 0]),
        (TABLE, [2, 0, 2]),
        (Subset(TABLE, [1, 0]), [0, 2]),
        (Subset(Subset(TABLE, [1, 0]), [1]), [2]),
        (ConcatDataset([TABLE, Listed(targets=[1, 1, 1])]), [2, 0, 2, 1, 1, 1]),
        (Listed(), None),
        (Listed(targets=[0, 1]), None),  # not one a sample
        (Listed(targets=[[0], [1, 2], []]), None),
        (Listed(targets=[{"boxes": 0}, {}, {}]), None),
        (Listed(targets=[0.5, 1.0, 2.0]), None),
        (Listed(targets=torch.zeros(3, 4, dtype=torch.int64)), None),  # masks
        (Listed(targets=[0, -1, 1]), None),  # unlabelled
        (Listed(targets=[0, 1, 2], target_transform=abs), None),  # batches hold other targets
        (Subset(Listed(), [0]), None),
        (ConcatDataset([TABLE, Listed()]), None),
        (None, None),
    ],
)
def test_targets_come_without_samples(dataset: Any, expected: list[int] | None) -> None:
    found = targets_of(dataset)
    assert (None if found is None else found.tolist()) == expected


def test_counts_have_an_entry_for_every_class() -> None:
    assert count_classes(torch.tensor([3, 0, 3]), 5) == [1, 0, 0, 2, 0]
    assert count_classes(torch.tensor([3, 0, 3]), 2) == [1, 0, 0, 2], "a target of no class must not go unseen"


def drawn(targets: Tensor, seed: int = 0) -> list[int]:
    return balanced_order(targets, torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize(
    "counts",
    [[90, 9, 1], [1, 90, 9], [50, 0, 50], [0, 0, 7], [1], [1, 1, 1], [97, 2, 1], [33, 33, 34], [5] * 20, [1, 0, 300]],
)
def test_every_class_comes_equally_often_and_so_does_every_sample_of_it(counts: list[int]) -> None:
    targets = torch.cat([torch.full((count,), k) for k, count in enumerate(counts)])
    targets = targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(1))]
    indices = drawn(targets)
    assert len(indices) == len(targets)
    by_class = Counter(targets[indices].tolist())
    assert by_class.keys() == set(targets.tolist())
    assert max(by_class.values()) - min(by_class.values()) <= 1, by_class
    times = Counter(indices)
    for k in by_class:
        of_class = [times[i] for i in (targets == k).nonzero().flatten().tolist()]
        assert max(of_class) - min(of_class) <= 1, (k, of_class)


def test_chance_decides_which_samples_come_and_where() -> None:
    targets = torch.tensor([0] * 95 + [1] * 5)
    orders = [drawn(targets, seed) for seed in range(40)]
    assert drawn(targets, 3) == orders[3]
    assert len({tuple(order) for order in orders}) == 40
    assert {i for order in orders for i in order} == set(range(100)), "with 50 of 95, 40 epochs leave none out"
    first_halves = [sum(targets[order[:50]].tolist()) for order in orders]
    assert 20 < sum(first_halves) / 40 < 30, "classes are mixed"
    assert len(set(first_halves)) > 1


def test_nothing_else_is_random() -> None:
    state = torch.get_rng_state()
    drawn(torch.arange(9) % 2)
    assert torch.equal(torch.get_rng_state(), state)
