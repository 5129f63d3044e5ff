"""Where a loader's time goes, by a clock that samples turn."""

import random
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from playbook.training import loading_stages as stages
from playbook.training.loading_stages import loading_stages


class Clock:
    """Stands still until it is turned."""

    now = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock.now = 0.0
    monkeypatch.setattr(stages.time, "perf_counter", lambda: Clock.now)


class Slow:
    """Takes its time, and random numbers."""

    def __init__(self, seconds: float = 0.01, num: int = 100, fails: bool = False) -> None:
        self.seconds, self.num, self.fails = seconds, num, fails

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> float:
        if self.fails:
            raise RuntimeError("needs its worker")
        Clock.now += self.seconds
        return random.random() + torch.rand(()).item()


def collate(samples: list[Any]) -> Any:
    Clock.now += 0.001 * len(samples)
    return default_collate(samples)


def loader(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(dataset, **{"batch_size": 8, "collate_fn": collate} | options)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Slow(), {"samples": 0.08, "collate": 0.008}),
        (Slow(num=3), {"samples": 0.08, "collate": 0.008}),  # as of a whole batch
        (Slow(seconds=0.3), {"samples": 2.4, "collate": 0.008}),
    ],
    ids=["whole", "a short data set", "long samples"],
)
def test_seconds_of_a_batch(dataset: Slow, expected: dict[str, float]) -> None:
    random.seed(1)
    torch.manual_seed(1)
    former = random.getstate(), torch.get_rng_state()
    assert loading_stages(loader(dataset)) == pytest.approx(expected)
    assert random.getstate() == former[0]
    assert torch.equal(torch.get_rng_state(), former[1])
    assert Clock.now < 0.7, "half a second of samples, and a batch of them"


class Stream(IterableDataset):
    """Has no samples by index."""

    def __iter__(self) -> Any:
        raise AssertionError("a stream must not be read")


class Whole(Slow):
    """Makes batches itself."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [0.0] * len(indices)


@pytest.mark.parametrize(
    "made",
    [
        loader(Stream()),
        loader(Whole()),
        loader(Slow(), batch_size=None, collate_fn=None),
        loader(Slow(fails=True)),
        [1, 2, 3],
        None,
    ],
    ids=["stream", "whole batches", "no batch size", "fails", "list", "none"],
)
def test_of_others_nothing_is_known(made: Any) -> None:
    assert loading_stages(made) == {}
