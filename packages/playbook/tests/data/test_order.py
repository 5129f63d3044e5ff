"""Batches that are taken and changed at once."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from playbook import Data
from playbook.data.order import SeededSamples

SIZE = 20


class Noisy(Data):
    """Numbers with noise."""

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = TensorDataset(torch.arange(float(SIZE)), torch.arange(SIZE))
        self.augment_batch = self.with_noise

    def with_noise(self, tensors: list[Tensor], draws: Tensor) -> tuple[Tensor, Tensor]:
        number, target = tensors
        return number + draws[:, 0] - draws[:, 1], target


def values(data: Noisy, epoch: int = 0, batch: int = 0) -> dict[int, float]:
    """By sample, its value in an epoch."""
    data.setup("fit")
    data._position = lambda: (epoch, batch)  # as within a training
    pairs = [
        (int(target), float(number)) for batch in data.train_dataloader() for number, target in zip(*batch, strict=True)
    ]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(("batch_size", "num_workers"), [(1, 0), (7, 0), (SIZE, 0), (7, 2)])
def test_a_sample_changes_the_same_in_any_batch(batch_size: int, num_workers: int) -> None:
    expected = values(Noisy(batch_size=4))
    assert values(Noisy(batch_size=batch_size, num_workers=num_workers)) == expected
    assert len({value - sample for sample, value in expected.items()}) == SIZE, "each has noise of its own"


def test_epochs_differ_and_positions_continue() -> None:
    first, second = (values(Noisy(batch_size=4), epoch) for epoch in (0, 1))
    assert all(first[sample] != second[sample] for sample in range(SIZE))
    rest = values(Noisy(batch_size=4), epoch=1, batch=2)
    assert len(rest) == SIZE - 8
    assert rest == {sample: second[sample] for sample in rest}


def test_evaluation_is_not_changed() -> None:
    data = Noisy(batch_size=8)
    data.setup("fit")
    loader: Any = data.val_dataloader()
    assert [batch[0].tolist() for batch in loader] == [list(range(k, min(k + 8, SIZE))) for k in range(0, SIZE, 8)]
    assert list(loader.indices) == [list(range(k, min(k + 8, SIZE))) for k in range(0, SIZE, 8)]


def test_single_samples_and_plain_indices() -> None:
    data = Noisy()
    data.setup("fit")
    samples = SeededSamples(data.train_set, 0, augment_batch=data.with_noise)
    batch = samples.take(3, torch.tensor([[5, 5], [2, 2]]))
    assert [float(value) for value in samples[3, 2, 2]] == [float(tensor[1]) for tensor in batch]
    assert samples[7][1] == 7  # of overfit_batches, whose sampler yields indices alone


def test_other_data_sets_give_single_samples() -> None:
    plain = TensorDataset(torch.arange(3))
    assert SeededSamples(plain, 0).takes_batches()
    assert not SeededSamples(plain, 0, augment=lambda sample: sample).takes_batches()
    assert not SeededSamples(SimpleNamespace(), 0).takes_batches()
