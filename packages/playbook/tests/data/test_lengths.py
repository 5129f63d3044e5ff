"""Buckets of lengths: how much padding is left, and that order, position and shares of ranks stay as they were."""

from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from data.test_base import Seen, assert_bitwise, batches, order, placed, train
from playbook.data.base import Data
from playbook.data.lengths import bucketed_order, lengths_of
from playbook.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than the machine has CPUs
NUM_SAMPLES = 403  # by fours: 100 whole batches and one of 3
LENGTHS = torch.randint(1, 60, (NUM_SAMPLES,), generator=torch.Generator().manual_seed(5))


class Long(list):
    """Samples that tell their lengths and classes."""

    lengths = LENGTHS
    targets = (LENGTHS > 50).long()


class Lengthy(Data):
    """Sample i is the number i."""

    def __init__(self, num_workers: int = 0, batch_size: int = 4, bucket: int = 10, balanced: bool = False) -> None:
        super().__init__(batch_size, num_workers, bucket=bucket, balanced=balanced)

    def setup(self, stage: str) -> None:
        samples: Any = Long(torch.tensor([float(i)], dtype=torch.float64) for i in range(NUM_SAMPLES))
        self.train_set = self.val_set = self.test_set = samples


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def padding(found: list[Tensor]) -> float:
    """Share of the places that are padding."""
    lengths = [LENGTHS[batch[:, 0].long()] for batch in found]
    return 1 - sum(int(n.sum()) for n in lengths) / sum(len(n) * int(n.max()) for n in lengths)


def test_batches_hold_similar_lengths() -> None:
    without, with_10, with_all = (padding(batches(Lengthy(bucket=bucket))) for bucket in (0, 10, 1000))
    assert without > 0.3, without
    assert with_10 < 0.1, with_10
    assert with_all < 0.02, with_all


@pytest.mark.parametrize("bucket", [1, 3, 10, 1000])
@pytest.mark.parametrize("batch_size", [1, 4, 403, 500])
def test_an_epoch_takes_every_sample_once(bucket: int, batch_size: int) -> None:
    found = order(Lengthy(bucket=bucket, batch_size=batch_size))
    assert sorted(found) == list(range(NUM_SAMPLES))


def test_a_short_last_batch_comes_last_and_is_of_any_length() -> None:
    last = [batches(Lengthy(), epoch)[-1][:, 0].long() for epoch in range(30)]
    assert {len(batch) for batch in last} == {3}
    mean = torch.cat([LENGTHS[batch] for batch in last]).float().mean().item()
    assert abs(mean - LENGTHS.float().mean().item()) < 6, mean  # of 90 samples, deviation 17: a standard error of 1.8


@pytest.mark.slow
def test_order_is_a_function_of_seed_and_epoch_and_batches_are_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {}
    for seed in ("7", "8"):
        monkeypatch.setenv("PL_GLOBAL_SEED", seed)
        for epoch in range(2):
            orders[seed, epoch] = order(Lengthy(), epoch)
            assert order(Lengthy(num_workers=2), epoch) == orders[seed, epoch]
    assert len({tuple(found) for found in orders.values()}) == 4
    lengths = torch.stack([LENGTHS[batch[:, 0].long()].float().mean() for batch in batches(Lengthy(bucket=1000))[:-1]])
    correlation = torch.corrcoef(torch.stack([lengths, torch.arange(100.0)]))[0, 1].item()
    assert abs(correlation) < 0.3, f"lengths correlate by {correlation:.2f} with the place of their batch"


@pytest.mark.parametrize(("epoch", "batch"), [(0, 1), (1, 37), (1, 100)])
def test_a_position_gives_exactly_the_remaining_batches(epoch: int, batch: int) -> None:
    data = Lengthy()
    data.load_state_dict({"epoch": epoch, "batch": batch})
    assert_bitwise(batches(data, epoch), batches(Lengthy(), epoch)[batch:])
    assert_bitwise(batches(data, epoch + 1), batches(Lengthy(), epoch + 1))


@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")  # the data module is, in its stead
@pytest.mark.slow
def test_a_checkpoint_continues_with_the_next_batch(tmp_path: Path) -> None:
    path = tmp_path / "position.ckpt"
    whole = train(Lengthy(), Seen(path, (1, 2)))
    assert_bitwise(train(Lengthy(num_workers=1), Seen(), path), whole[101 + 3 :])


@pytest.mark.parametrize("world", [2, 3])
def test_batches_of_all_processes_are_one_of_similar_lengths(world: int) -> None:
    shares = [list(placed(Lengthy(), 1, rank, world).train_dataloader()) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    together = [torch.cat(parts) for parts in zip(*shares, strict=True)]
    assert padding(together) < 0.12, "ranks wait for the longest of all"
    rows = [[int(row[0]) for batch in share for row in batch] for share in shares]
    seen = sorted(i for share in rows for i in share)
    assert len(set(seen)) == len(seen) > NUM_SAMPLES - world
    alone = order(Lengthy(batch_size=4 * world), 1)
    assert [i for turn in zip_longest(*rows) for i in turn if i is not None] == alone[: len(seen)]


def test_samples_of_a_batch_are_those_that_come() -> None:
    loader = placed(Lengthy(), epoch=1, rank=1, world=2).train_dataloader()
    sampler: Any = loader.sampler
    for number, batch in enumerate(loader):
        assert sampler.samples_of_batch(1, number) == [int(row[0]) for row in batch]


def test_balanced_batches_hold_similar_lengths_too() -> None:
    found = batches(Lengthy(balanced=True))
    rows = torch.cat(found)[:, 0].long()
    assert Long.targets[rows].bincount().tolist() in ([201, 202], [202, 201])
    assert padding(found) < 0.12


def test_evaluation_stays_in_order() -> None:
    data = placed(Lengthy())
    assert [int(row[0]) for batch in data.val_dataloader() for row in batch] == list(range(NUM_SAMPLES))


def test_another_batch_size_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = Lengthy(batch_size=8)
    data.trainer = SimpleNamespace(global_rank=0, world_size=1, accumulate_grad_batches=1, is_global_zero=True)  # type: ignore[assignment]
    data.load_state_dict({"epoch": 0, "batch": 4, "batch_size": 4})
    assert "buckets depend on the batch size, so the rest of the epoch has other samples" in capsys.readouterr().out


def test_a_data_set_without_lengths_is_an_error() -> None:
    data = Lengthy(bucket=7)
    data.setup("fit")
    data.train_set = list(data.train_set)  # type: ignore[assignment,call-overload]
    with pytest.raises(
        UserError, match=r"^--data\.bucket 7: the training set of Lengthy does not list the length of each sample"
    ):
        data.train_dataloader()
    data.val_dataloader()
    with pytest.raises(ValueError, match="bucket: expected at least 0 batches, got -1"):
        Lengthy(bucket=-1)


def test_lengths_of_parts() -> None:
    whole: Any = Long(range(NUM_SAMPLES))
    part = Subset(whole, [5, 3])
    both: Any = ConcatDataset([part, whole])
    assert lengths_of(both).tolist() == [*LENGTHS[[5, 3]].tolist(), *LENGTHS.tolist()]  # type: ignore[union-attr]
    assert lengths_of(Long([1, 2])) is None, "not one for every sample"
    assert lengths_of([1, 2]) is None


def test_order_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    found = bucketed_order(torch.tensor([4, 2, 0, 3, 1]), torch.tensor([50, 20, 40, 10, 30]), 2, 2, generator)
    assert sorted(map(sorted, [found[:2].tolist(), found[2:4].tolist()])) == [[0, 2], [3, 4]]
    assert found[4] == 1, "what does not fill a batch is the end of the random order"
