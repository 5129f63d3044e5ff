"""Mixtures: the share of each part, no sample twice before all came, exact resuming, and parts that do not fit."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from playbook import Data, UserError
from playbook.testing.command import Cli
from playbook.testing.resume import PowerCutError, assert_same_ending
from src.data.mixture import Mixture, quotas
from tests.conftest import cli_process

SIZES = {"a": 7, "b": 40, "c": 100}


class Numbered(Data):
    """Sample i is the number `first` + i, and what the augmentation drew."""

    hold: Any = list

    def __init__(self, first: int, size: int, **loader: Any) -> None:
        super().__init__(**loader)
        self.first, self.size = first, size

    def setup(self, stage: str) -> None:
        self.train_set = self.val_set = self.hold(torch.tensor([self.first + i, 0.0]) for i in range(self.size))
        self.test_set = None

    def augment(self, sample: torch.Tensor) -> torch.Tensor:
        return torch.stack([sample[0], torch.rand(())])


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def mixture(weights: dict[str, float] | None = None, sizes: dict[str, int] = SIZES, **options: Any) -> Any:
    parts: dict[str, Data] = {name: Numbered(1000 * k, size) for k, (name, size) in enumerate(sizes.items())}
    return ready(Mixture(parts, weights, **options))


def ready(data: Data) -> Any:
    data.setup("fit")
    return data


def place(data: Data, epoch: int, rank: int = 0, world: int = 1) -> None:
    data.trainer = SimpleNamespace(current_epoch=epoch, global_rank=rank, world_size=world)  # type: ignore[assignment]


def epoch_of(data: Data, epoch: int, rank: int = 0, world: int = 1) -> torch.Tensor:
    """Numbers and random numbers of an epoch's samples, (N, 2)."""
    place(data, epoch, rank, world)
    return torch.cat([*data.train_dataloader()])


def test_each_epoch_has_the_shares() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=8)
    for epoch in range(3):
        parts = Counter((epoch_of(data, epoch)[:, 0] // 1000).long().tolist())
        assert parts == {0: 30, 1: 18, 2: 12}


def test_what_is_left_by_rounding_goes_to_those_that_lost_most() -> None:
    assert quotas([0.7, 0.3], 10) == [7, 3]
    assert quotas([1, 1, 1], 10) == [4, 3, 3]
    assert quotas([0.5, 0.3, 0.2], 7) == [4, 2, 1]  # of 3.5, 2.1, 1.4
    assert quotas([2, 0], 5) == [5, 0]


def test_without_weights_every_sample_comes_once_an_epoch() -> None:
    data = mixture()
    epochs = [epoch_of(data, epoch) for epoch in range(2)]
    numbers = [1000 * k + i for k, size in enumerate(SIZES.values()) for i in range(size)]
    assert [sorted(rows[:, 0].tolist()) for rows in epochs] == [numbers] * 2
    assert not torch.equal(*epochs)


def test_a_part_is_exhausted_before_a_sample_comes_again() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60)
    rows = torch.cat([data.draw(epoch) for epoch in range(9)])
    first = 0
    for size in SIZES.values():
        own = rows[(rows[:, 0] >= first) & (rows[:, 0] < first + size)]
        passes = own[:, 1].unique().tolist()
        assert passes == [*range(len(own) // size + bool(len(own) % size))]
        orders = [own[own[:, 1] == number, 0] for number in passes]
        assert all(sorted(order.tolist()) == [*range(first, first + size)] for order in orders[: len(own) // size])
        assert len(orders[-1].unique()) == len(orders[-1])
        first += size
    assert not torch.equal(*(rows[(rows[:, 0] < 7) & (rows[:, 1] == number), 0] for number in (0, 1)))


def test_a_repeated_sample_is_augmented_anew_by_its_own_part() -> None:
    data = mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60)
    rows = torch.cat([epoch_of(data, epoch) for epoch in range(3)])
    assert (rows[:, 0] == 3).sum() >= 12
    assert len(rows[:, 1].unique()) == len(rows), "no two of them have the same random number"


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_position_gives_exactly_the_remaining_batches(num_workers: int) -> None:
    options: Any = {"samples_per_epoch": 60, "batch_size": 8}
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    whole = mixture(weights, **options)
    place(whole, 5)
    batches = [*whole.train_dataloader()]
    data = mixture(weights, num_workers=num_workers, **options)
    data.load_state_dict({"epoch": 5, "batch": 3})
    place(data, 5)
    rest = [*data.train_dataloader()]
    assert len(rest) == len(batches) - 3
    assert all(torch.equal(one, other) for one, other in zip(rest, batches[3:], strict=True))


def test_two_ranks_share_what_one_has() -> None:
    one, two = (mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=size) for size in (8, 4))
    ranks = [epoch_of(two, 4, rank, world=2) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [30, 30]
    assert torch.equal(torch.stack(ranks, dim=1).flatten(0, 1), epoch_of(one, 4))


class Lengthy(list[torch.Tensor]):
    """Samples of the lengths 0 to 4 in turn."""

    @property
    def lengths(self) -> list[int]:
        return [number % 5 for number in range(len(self))]


def test_buckets_keep_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbered, "hold", Lengthy)
    data = [mixture({"a": 0.5, "b": 0.3, "c": 0.2}, samples_per_epoch=60, batch_size=6, bucket=n) for n in (0, 10)]
    plain, bucketed = (epoch_of(each, 1) for each in data)
    assert sorted(plain.tolist()) == sorted(bucketed.tolist())
    lengths = (bucketed[:, 0] % 1000 % 5).view(10, 6)
    assert (lengths.amax(1) - lengths.amin(1)).max() <= 1
    sampler = data[1].train_dataloader().sampler
    chosen = data[1].train_set
    assert [chosen[index][0] for index in sampler.samples_of_batch(1, 2)] == bucketed[12:18, 0].tolist()


def test_validation_goes_through_all_parts_and_names_them() -> None:
    data = mixture()
    place(data, 0)
    numbers = torch.cat([*data.val_dataloader()])[:, 0].tolist()
    assert numbers == [1000 * k + i for k, size in enumerate(SIZES.values()) for i in range(size)]
    assert data.ids(data.val_set)[5:9] == ["a/5", "a/6", "b/0", "b/1"]
    assert data.test_set is None


@pytest.fixture
def texts(tmp_path: Path) -> tuple[str, str]:
    for name, letters in (("zero", "abcdefgh"), ("two", "fedcba")):
        (tmp_path / f"{name}.txt").write_text(
            "".join(letters[i * i % len(letters)] for i in range(1500)) + letters * 90
        )
    return str(tmp_path / "zero.txt"), str(tmp_path / "two.txt")


def test_a_part_without_samples_or_without_a_share_is_told() -> None:
    with pytest.raises(UserError, match=r"--data.parts.b: Numbered found no train samples"):
        mixture(sizes={"a": 3, "b": 0})
    with pytest.raises(UserError, match=r"--data.weights: b gets less than one of the 20 samples per epoch"):
        mixture({"a": 100, "b": 1}, {"a": 3, "b": 3}, samples_per_epoch=20)


def options(texts: tuple[str, str], run: str, *args: str) -> list[str]:
    parts = {
        Path(file).stem: {"class_path": "Text", "init_args": {"root": file, "context_length": 16}} for file in texts
    }
    return [
        "fit", "--model", "LanguageModelling", "--model.net", "GPT", "--model.net.vocab_size", "8",
        "--model.net.context_length", "16", "--model.net.num_layers", "1", "--model.net.dim", "16",
        "--model.net.num_heads", "2", "--model.net.dropout", "0.1", "--data", "Mixture",
        "--data.parts", json.dumps(parts), "--data.weights", '{"zero": 0.8, "two": 0.2}', "--data.batch_size", "8",
        "--data.samples_per_epoch", "84", "--trainer.max_epochs", "3", "--run_dir", run, "--ckpt_path", "last",
        "--checkpoint.every_n_steps", "1", *args,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_that_was_cut_off_in_an_epoch_ends_with_the_same_weights(cli: Cli, texts: tuple[str, str]) -> None:
    whole = cli(*options(texts, "whole"))
    assert whole.code == 0, whole.err
    cut = "playbook.testing.resume.CutAt"
    with pytest.raises(PowerCutError):
        cli(*options(texts, "run", f"--trainer.callbacks+={cut}", "--trainer.callbacks.step=16"))  # of 33, 11 an epoch
    assert cli(*options(texts, "run", "--trainer.callbacks", "null")).code == 0
    assert_same_ending("run", "whole")


@pytest.mark.slow
def test_a_killed_run_with_workers_ends_with_the_same_weights(cli: Cli, workdir: Path, texts: tuple[str, str]) -> None:
    args = options(texts, "run", "--data.num_workers", "2")
    checkpoint = Path("run/checkpoints/last.ckpt")
    with cli_process(*args, cwd=workdir, new_group=True) as run:
        while run.poll() is None and not (checkpoint.exists() and step_of(checkpoint) >= 12):
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
    assert 12 <= step_of(checkpoint) < 22, "killed in the second epoch"
    assert cli(*args).code == 0
    assert cli(*options(texts, "whole")).code == 0
    assert_same_ending("run", "whole")


def step_of(checkpoint: Path) -> int:
    return torch.load(checkpoint, weights_only=True)["global_step"]
