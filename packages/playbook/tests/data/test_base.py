"""Order, augmentation and position of the loaders, on data whose samples say which they are."""

import random
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.data.base import Data
from playbook.data.splits import split_indices
from playbook.errors import UserError
from playbook.seeding import derived_seed, seed_generators, seeded
from playbook.testing.command import UNSAVED

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than the machine has CPUs
NUM_SAMPLES = 23  # by fives: four whole batches and one of 3


class Numbered(Data):
    """Sample i is the number i, followed by what the augmentation drew from each generator."""

    def __init__(self, num_workers: int = 0, num_samples: int = NUM_SAMPLES, batch_size: int = 5) -> None:
        super().__init__(batch_size, num_workers)
        self.num_samples = num_samples

    def setup(self, stage: str) -> None:
        samples: Any = [torch.tensor([i, 0, 0, 0], dtype=torch.float64) for i in range(self.num_samples)]
        self.train_set = self.val_set = self.test_set = samples

    def augment(self, sample: Tensor) -> Tensor:
        drawn = [random.random(), np.random.random(), torch.rand((), dtype=torch.float64).item()]
        return torch.tensor([sample[0].item(), *drawn], dtype=torch.float64)


class Plain(Numbered):
    """The same without augmentation."""

    augment: Any = None


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def placed(data: Data, epoch: int = 0, rank: int = 0, world: int = 1) -> Data:
    """Data of one process in a training; starting several would take ten seconds each."""
    data.setup("fit")
    data.trainer = SimpleNamespace(current_epoch=epoch, global_rank=rank, world_size=world)  # type: ignore[assignment]
    return data


def batches(data: Data, epoch: int = 0) -> list[Tensor]:
    return list(placed(data, epoch).train_dataloader())


def order(data: Data, epoch: int = 0) -> list[int]:
    return [int(row[0]) for batch in batches(data, epoch) for row in batch]


def assert_bitwise(found: list[Tensor], expected: list[Tensor]) -> None:
    assert [len(batch) for batch in found] == [len(batch) for batch in expected]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# the order


def test_an_epoch_takes_every_sample_once_in_a_random_order() -> None:
    found = order(Numbered())
    assert sorted(found) == list(range(NUM_SAMPLES))
    assert found != sorted(found)


def test_order_is_a_function_of_seed_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {}
    for seed in ("7", "8"):
        monkeypatch.setenv("PL_GLOBAL_SEED", seed)
        for epoch in range(3):
            seed_generators(random.getrandbits(32))  # whatever was drawn before
            orders[seed, epoch] = order(Numbered(), epoch)
            assert orders[seed, epoch] == order(Numbered(), epoch)
    assert len({tuple(found) for found in orders.values()}) == 6, orders


def test_one_loader_moves_on_with_the_epochs() -> None:
    """Lightning keeps the loader, and with it its workers, over all epochs."""
    data = placed(Numbered(num_workers=1))
    loader = data.train_dataloader()
    for epoch in range(3):
        data.trainer.current_epoch = epoch  # type: ignore[union-attr,misc]
        assert_bitwise(list(loader), batches(Numbered(), epoch))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_pass_leaves_the_generators_as_they_were(num_workers: int) -> None:
    """Otherwise the weights and dropouts after it would depend on the number of workers."""
    states = _states()
    batches(Numbered(num_workers))
    list(placed(Numbered(num_workers)).val_dataloader())
    assert _states() == states


# augmentation


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_augmentation_does_not_depend_on_the_workers(num_workers: int) -> None:
    assert_bitwise(batches(Numbered(num_workers), epoch=1), batches(Numbered(), epoch=1))


def test_augmentation_does_not_depend_on_the_batch_size() -> None:
    by_number = [
        sorted(row.tolist() for batch in batches(Numbered(batch_size=size), epoch=2) for row in batch)
        for size in (1, 5, 23)
    ]
    assert by_number[0] == by_number[1] == by_number[2]


def test_augmentation_draws_anew_for_every_sample_epoch_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = []
    for seed in ("7", "8"):
        monkeypatch.setenv("PL_GLOBAL_SEED", seed)
        draws += [row[1:] for epoch in range(3) for batch in batches(Numbered(), epoch) for row in batch]
    for generator in range(3):
        assert len({draw[generator].item() for draw in draws}) == len(draws) == 6 * NUM_SAMPLES


def test_evaluation_is_not_augmented() -> None:
    data = placed(Numbered())
    for loader in (data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()):
        assert not torch.cat(list(loader))[:, 1:].any()


def test_without_augmentation_samples_come_as_they_are() -> None:
    found = torch.cat(batches(Plain(), epoch=1))
    assert not found[:, 1:].any()
    assert found[:, 0].tolist() == order(Numbered(), epoch=1)


# the position


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("epoch", "batch"), [(0, 0), (0, 1), (0, 4), (2, 3), (2, 5)])
def test_a_position_gives_exactly_the_remaining_batches(num_workers: int, epoch: int, batch: int) -> None:
    data = Numbered(num_workers)
    data.load_state_dict({"epoch": epoch, "batch": batch})
    assert_bitwise(batches(data, epoch), batches(Numbered(), epoch)[batch:])
    assert_bitwise(batches(data, epoch + 1), batches(Numbered(), epoch + 1))


class Counting(LightningModule):
    """Trains a number on whatever batch comes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def training_step(self, batch: Tensor) -> Tensor:
        return self.weight * batch.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    # a data module brings it, so Lightning asks for the step
    def validation_step(self, batch: Tensor) -> None:
        pass


class Seen(Callback):
    """Keeps every batch, and saves a checkpoint after one of them."""

    def __init__(self, save_to: Path | None = None, after: tuple[int, int] | None = None) -> None:
        self.save_to, self.after = save_to, after
        self.batches: list[Tensor] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.batches.append(batch)
        if (trainer.current_epoch, batch_idx) == self.after:
            trainer.save_checkpoint(str(self.save_to))


def test_task_and_data_may_have_options_of_one_name() -> None:
    """As ignore_index of masks, which a file and a batch may hold as different numbers."""

    class WithOptions(Numbered):
        def __init__(self, level: int, depth: int) -> None:
            super().__init__()
            self.save_hyperparameters()

    task = Counting()
    task.save_hyperparameters({"level": 2})
    data = WithOptions(level=1, depth=3)
    Trainer(**UNSAVED, max_steps=1, num_sanity_val_steps=0).fit(task, datamodule=data)
    assert data.hparams_initial == {"depth": 3}
    assert data.hparams == {"level": 1, "depth": 3}


def train(data: Data, seen: Seen, ckpt_path: Path | None = None) -> list[Tensor]:
    trainer = Trainer(**UNSAVED, max_epochs=3, num_sanity_val_steps=0, callbacks=[seen])
    trainer.fit(Counting(), datamodule=data, ckpt_path=ckpt_path)
    return seen.batches


@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")  # the data module is, in its stead
@pytest.mark.parametrize(("num_workers", "after"), [(0, (0, 0)), (0, (1, 2)), (2, (1, 2))])
def test_a_checkpoint_continues_with_the_next_batch(num_workers: int, after: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "position.ckpt"
    whole = train(Numbered(num_workers), Seen(path, after))
    expected = [batch for epoch in range(3) for batch in batches(Numbered(), epoch)]
    assert_bitwise(whole, expected)
    state = torch.load(path, weights_only=True)["Numbered"]
    assert state == {"epoch": after[0], "batch": after[1] + 1, "batch_size": 5, "skipped_samples": []}
    resumed = train(Numbered(2 - num_workers), Seen(), path)  # the number of workers may change
    assert_bitwise(resumed, whole[after[0] * 5 + after[1] + 1 :])


def test_a_checkpoint_between_epochs_continues_with_a_whole_one(tmp_path: Path) -> None:
    trainer = Trainer(**UNSAVED, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(Counting(), datamodule=Numbered())
    trainer.save_checkpoint(tmp_path / "border.ckpt")
    state = torch.load(tmp_path / "border.ckpt", weights_only=True)["Numbered"]
    assert state == {"epoch": 2, "batch": 0, "batch_size": 5, "skipped_samples": []}
    assert_bitwise(train(Numbered(), Seen(), tmp_path / "border.ckpt"), batches(Numbered(), 2))


def test_overfit_batches_repeats_the_first_samples() -> None:
    """Lightning then brings its own sampler, of plain indices."""
    seen = Seen()
    trainer = Trainer(**UNSAVED, max_epochs=2, overfit_batches=2, num_sanity_val_steps=0, callbacks=[seen])
    with pytest.warns(match="requested to overfit"):
        trainer.fit(Counting(), datamodule=Numbered())
    assert [int(row[0]) for batch in seen.batches for row in batch] == [*range(10), *range(10)]
    assert_bitwise(seen.batches[:2], seen.batches[2:])


# evaluation, and several processes


@pytest.mark.parametrize("num_workers", [0, 2])
def test_evaluation_keeps_the_order_and_drops_nothing(num_workers: int) -> None:
    data = placed(Numbered(num_workers), epoch=3)
    for loader in (data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()):
        for _ in range(2):
            assert [int(row[0]) for batch in loader for row in batch] == list(range(NUM_SAMPLES))
        assert len(loader) == 5


@pytest.mark.parametrize("world", [1, 2, 3, 4, 23, 25])
def test_processes_share_the_samples_without_repeating_one(world: int) -> None:
    for make in (Data.val_dataloader, Data.test_dataloader, Data.train_dataloader):
        training = make is Data.train_dataloader
        shares = []
        for rank in range(world):
            loader: DataLoader = make(placed(Numbered(), epoch=1, rank=rank, world=world))
            rows = [int(row[0]) for batch in loader for row in batch]
            assert len(loader.sampler) == len(rows)  # type: ignore[arg-type]
            assert len(loader) == -(-len(rows) // (loader.batch_size or 0))
            shares.append(rows)
        seen = sorted(i for share in shares for i in share)
        if training:  # equally many batches on every rank, without repeating a sample
            assert len({-(-len(share) // 5) for share in shares}) == 1
            assert len(set(seen)) == len(seen) > NUM_SAMPLES - world
        else:
            assert seen == list(range(NUM_SAMPLES))
            assert all(share == sorted(share) for share in shares)


def test_processes_together_train_in_the_order_of_one() -> None:
    shares = [
        [int(row[0]) for batch in placed(Numbered(), 1, rank, 2).train_dataloader() for row in batch] for rank in (0, 1)
    ]
    assert [i for pair in zip_longest(*shares) for i in pair][:23] == order(Numbered(), 1)


@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2)])
def test_samples_of_a_batch_are_those_that_come(rank: int, world: int) -> None:
    loader = placed(Numbered(), epoch=1, rank=rank, world=world).train_dataloader()
    sampler: Any = loader.sampler
    for number, batch in enumerate(loader):
        assert sampler.samples_of_batch(1, number) == [int(row[0]) for row in batch]


# every class equally often


class Listed(list):
    """Samples with their classes."""

    def __init__(self, samples: list[Any], targets: list[int]) -> None:
        super().__init__(samples)
        self.targets = targets


class Rare(Numbered):
    """20 samples of class 0, then 2 of class 1 and 1 of class 2."""

    classes = (0,) * 20 + (1, 1, 2)

    def __init__(self, num_workers: int = 0, batch_size: int = 5) -> None:
        super().__init__(num_workers, batch_size=batch_size)
        self.balanced = True

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.train_set = Listed(self.train_set, list(self.classes))  # type: ignore[arg-type,assignment]  # it is a list


def test_balanced_epochs_are_as_long_and_take_every_class_as_often() -> None:
    for epoch in range(4):
        indices = order(Rare(), epoch)
        assert len(indices) == NUM_SAMPLES
        times = [sum(Rare.classes[i] == k for i in indices) for k in range(3)]
        assert sorted(times) == [7, 8, 8], times
    assert {i for epoch in range(20) for i in order(Rare(), epoch)} == set(range(NUM_SAMPLES))


def test_repetitions_of_a_sample_are_augmented_anew() -> None:
    rows = torch.cat(batches(Rare(), epoch=1))
    repeated = rows[rows[:, 0] == 22]
    assert len(repeated) >= 7
    for generator in range(3):
        assert len(set(rows[:, 1 + generator].tolist())) == NUM_SAMPLES


def test_balanced_batches_are_a_function_of_seed_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {epoch: torch.cat(batches(Rare(), epoch)) for epoch in (0, 1)}
    assert not torch.equal(whole[0], whole[1])
    for num_workers, batch_size in ((0, 1), (0, 23), (2, 5)):
        assert torch.equal(torch.cat(batches(Rare(num_workers, batch_size), 1)), whole[1]), (num_workers, batch_size)
    shares = [torch.cat(list(placed(Rare(), 1, rank, 2).train_dataloader())) for rank in (0, 1)]
    assert torch.equal(torch.cat([shares[0], shares[1]]), torch.cat([whole[1][::2], whole[1][1::2]]))
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    assert not torch.equal(torch.cat(batches(Rare(), 1)), whole[1])


@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_balanced_training_continues_with_the_next_batch(num_workers: int, tmp_path: Path) -> None:
    path = tmp_path / "position.ckpt"
    whole = train(Rare(num_workers), Seen(path, (1, 2)))
    assert_bitwise(whole, [batch for epoch in range(3) for batch in batches(Rare(), epoch)])
    assert_bitwise(train(Rare(2 - num_workers), Seen(), path), whole[8:])


def test_balanced_evaluation_stays_as_it_is() -> None:
    data = placed(Rare())
    assert [int(row[0]) for batch in data.val_dataloader() for row in batch] == list(range(NUM_SAMPLES))


def test_balanced_batches_know_their_samples() -> None:
    loader = placed(Rare(), epoch=1).train_dataloader()
    sampler: Any = loader.sampler
    for number, batch in enumerate(loader):
        assert sampler.samples_of_batch(1, number) == [int(row[0]) for row in batch]


def test_samples_without_a_class_cannot_be_balanced() -> None:
    data = placed(Numbered())
    data.balanced = True
    message = "^--data.balanced: the training set of Numbered does not list the class of each sample; expected an"
    with pytest.raises(UserError, match=message):
        data.train_dataloader()
    data.val_dataloader()


def test_classes_are_counted() -> None:
    data = placed(Rare())
    data.count_classes()
    assert data.facts == {"class_counts": [20, 2, 1]}
    data.facts["classes"] = ["a", "b", "c", "d"]
    data.count_classes()
    assert data.facts["class_counts"] == [20, 2, 1, 0]
    data = placed(Numbered())
    data.count_classes()
    assert data.facts == {}


# splits


@pytest.mark.parametrize(
    ("num_samples", "shares", "sizes"),
    [
        (10, [0.6, 0.2, 0.2], [6, 2, 2]),
        (1797, [0.6, 0.2, 0.2], [1078, 360, 359]),
        (7, [0.5, 0.5], [4, 3]),
        (5, [1.0, 0.0], [5, 0]),
        (1, [0.4, 0.3, 0.3], [0, 1, 0]),
        (0, [0.9, 0.1], [0, 0]),
        (1000, [0.1] * 10, [100] * 10),
    ],
)
def test_parts_never_overlap_and_leave_nothing_out(num_samples: int, shares: list[float], sizes: list[int]) -> None:
    parts = split_indices(num_samples, shares)
    assert [len(part) for part in parts] == sizes
    assert sorted(i for part in parts for i in part) == list(range(num_samples))


def test_a_split_depends_on_its_own_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = split_indices(100, [0.8, 0.2])
    torch.manual_seed(12345)
    monkeypatch.setenv("PL_GLOBAL_SEED", "99")
    assert split_indices(100, [0.8, 0.2]) == first
    assert split_indices(100, [0.8, 0.2], seed=1) != first
    assert sorted(first[0]) != list(range(80)), "the last samples of a sorted data set would be the whole test set"


@pytest.mark.parametrize("shares", [[0.5, 0.4], [0.6, 0.6], [1.2, -0.2], []])
def test_shares_that_are_no_split_are_an_error(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares: expected non-negative numbers that add up to 1, got"):
        split_indices(10, shares)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"num_workers": -1}, "num_workers: expected at least 0, got -1"),
    ],
)
def test_counts_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Data(**arguments)


# seeds


def _states() -> tuple[Any, ...]:
    """Of the global generators of Python, NumPy and torch."""
    name, keys, *rest = np.random.get_state()
    return random.getstate(), (name, np.asarray(keys).tolist(), *rest), torch.get_rng_state().tolist()


def _draw() -> tuple[float, float, float]:
    return random.random(), np.random.random(), torch.rand(()).item()


@pytest.fixture
def generators() -> Iterator[None]:
    """Gives the generators of the test session back."""
    python, array, tensor = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python)
    np.random.set_state(array)
    torch.set_rng_state(tensor)


def test_seeded_gives_every_generator_its_state_back(generators: None) -> None:
    torch.randn(3)
    random.gauss(0, 1)  # leaves a second number in Python's state
    np.random.standard_normal()  # and in NumPy's
    states = _states()
    with seeded(1, 2, 3):
        _draw()
        random.gauss(0, 1)
        assert all(a != b for a, b in zip(_states(), states, strict=True))
    assert _states() == states
    with pytest.raises(KeyError), seeded(1):
        raise KeyError
    assert _states() == states


def test_seeded_draws_are_a_function_of_the_key() -> None:
    draws = {}
    for key in [(0,), (1,), (0, 1), (1, 0), (0, 0, 1), (0, 1, 0)]:
        with seeded(*key):
            draws[key] = _draw()
        with seeded(*key):
            assert _draw() == draws[key]
    for of_one_generator in zip(*draws.values(), strict=True):
        assert len(set(of_one_generator)) == len(draws)


def test_seeding_is_what_each_library_does_with_that_number(generators: None) -> None:
    seed_generators(123)
    drawn = _draw()
    random.seed(123)
    np.random.seed(123)
    torch.manual_seed(123)
    assert drawn == _draw()


def test_derived_seeds_stay_what_they_are() -> None:
    """A changed number would continue every run with other batches. From `printf '(7, 0, 1)' | b2sum -l 32`."""
    assert derived_seed(7, 0, 1) == int.from_bytes(bytes.fromhex("b5feccd7"), "little")
