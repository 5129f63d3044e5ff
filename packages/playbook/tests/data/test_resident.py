"""Batches that are made at once: the same samples and changes as one by one, from any position and on any rank."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from playbook.data.resident import ResidentImages, mean_and_deviation
from playbook.errors import UserError

NUM = 90


class Numbered(ResidentImages):
    """The target of image i is i."""

    def __init__(self, batch_size: int = 16, **images: Any) -> None:
        super().__init__(batch_size, **images)

    def setup(self, stage: str) -> None:
        images = torch.randint(0, 256, (NUM + 20, 3, 12, 10), generator=torch.Generator().manual_seed(0)).byte()
        targets = torch.arange(NUM + 20)
        self.hold((images[:NUM], targets[:NUM]), (images[NUM:], targets[NUM:]))


CHANGES = {"flip": True, "translate": 2, "crop": 0.5, "cutout": 3}


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def placed(data: ResidentImages, epoch: int = 0, rank: int = 0, world: int = 1) -> ResidentImages:
    data.setup("fit")
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    trainer = SimpleNamespace(
        current_epoch=epoch, global_rank=rank, world_size=world, strategy=strategy, accumulate_grad_batches=1
    )
    data.trainer = trainer  # type: ignore[assignment]  # what the data ask of one
    return data


def samples(batches: Any) -> dict[int, Tensor]:
    found = {}
    for image, target in batches:
        for one, number in zip(image, target.tolist(), strict=True):
            assert number not in found, f"{number} came twice"
            found[number] = one
    return found


def equal(found: dict[int, Tensor], expected: dict[int, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[i], expected[i]) for i in found)


def test_splits_are_disjoint_and_complete() -> None:
    data = placed(Numbered(val_share=0.2))
    found = [set(samples(loader())) for loader in (data.train_dataloader, data.val_dataloader, data.test_dataloader)]
    assert [len(part) for part in found] == [72, 18, 20]
    assert set().union(*found) == set(range(NUM + 20))
    assert found[2] == set(range(NUM, NUM + 20)), "the test images stay the test images"


def test_a_sample_changes_the_same_in_any_batch_on_any_rank_with_any_workers() -> None:
    expected = samples(placed(Numbered(**CHANGES), epoch=3).train_dataloader())
    assert len(expected) == 81
    for batch_size, workers in ((1, 0), (7, 0), (81, 0), (16, 2)):
        data = placed(Numbered(batch_size, num_workers=workers, **CHANGES), epoch=3)
        assert equal(samples(data.train_dataloader()), expected), (batch_size, workers)
    ranks = [samples(placed(Numbered(3, **CHANGES), 3, rank, 3).train_dataloader()) for rank in range(3)]
    assert sum(map(len, ranks)) == len(expected)
    assert equal(ranks[0] | ranks[1] | ranks[2], expected)


class Rare(Numbered):
    """All images but the last few are of class 0, and one of each further class."""

    def setup(self, stage: str) -> None:
        images = torch.randint(0, 256, (NUM + 20, 3, 12, 10), generator=torch.Generator().manual_seed(0)).byte()
        targets = (torch.arange(NUM + 20) - 82).clamp(min=0)
        names = [str(k) for k in range(28)]
        self.hold((images[:NUM], targets[:NUM]), (images[NUM:], targets[NUM:]), names)


def test_classes_come_equally_often_each_time_changed_in_another_way() -> None:
    [[images, targets]] = placed(Rare(81, balanced=True, translate=2), epoch=1).train_dataloader()
    assert len(targets) == 81
    times = targets.bincount()
    present = placed(Rare()).facts["class_counts"]
    assert len(present) == 28
    assert sum(present) == 81
    assert [count > 0 for count in present[: len(times)]] == [count > 0 for count in times.tolist()]
    assert max(times) - min(times[times > 0]) <= 1
    rare = images[targets == next(k for k, count in enumerate(present) if count == 1)]
    moved = len(rare.flatten(1).unique(dim=0))
    assert moved > len(rare) / 2, f"{len(rare)} repetitions, {moved} of 25 shifts"


def test_balanced_batches_are_the_same_in_any_size_on_any_rank_from_any_position() -> None:
    options = {**CHANGES, "balanced": True, "crop": 1.0}
    [whole] = placed(Rare(81, **options), epoch=1).train_dataloader()
    for size, workers in ((7, 0), (16, 2)):
        parts = list(placed(Rare(size, num_workers=workers, **options), epoch=1).train_dataloader())
        assert all(torch.equal(torch.cat([part[i] for part in parts]), whole[i]) for i in (0, 1)), (size, workers)
    ranks = [next(iter(placed(Rare(81, **options), 1, rank, 3).train_dataloader())) for rank in range(3)]
    assert all(torch.equal(ranks[rank][i], whole[i][rank::3]) for rank in range(3) for i in (0, 1))
    data = placed(Rare(10, **options), epoch=1)
    data.load_state_dict({"epoch": 1, "batch": 3})
    rest = list(data.train_dataloader())
    assert all(torch.equal(torch.cat([part[i] for part in rest]), whole[i][30:]) for i in (0, 1))


def test_evaluation_on_several_ranks_takes_every_sample_once() -> None:
    expected = samples(placed(Numbered()).test_dataloader())
    for world in (2, 3):
        parts = [samples(placed(Numbered(4), 0, rank, world).test_dataloader()) for rank in range(world)]
        assert sum(map(len, parts)) == 20
        assert equal(parts[0] | parts[1] | (parts[2] if world == 3 else {}), expected)


def test_continues_at_any_position() -> None:
    whole = list(placed(Numbered(**CHANGES), epoch=1).train_dataloader())
    for position in range(len(whole)):
        data = placed(Numbered(**CHANGES), epoch=1)
        data.load_state_dict({"epoch": 1, "batch": position})
        rest = list(data.train_dataloader())
        for (image, target), (expected, number) in zip(rest, whole[position:], strict=True):
            assert torch.equal(target, number)
            assert torch.equal(image, expected)


def test_changes_differ_between_epochs_samples_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [samples(placed(Numbered(translate=2), epoch).train_dataloader()) for epoch in (0, 1)]
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    found.append(samples(placed(Numbered(translate=2)).train_dataloader()))
    for a, b in ((0, 1), (0, 2)):
        same = sum(torch.equal(found[a][i], found[b][i]) for i in found[0])
        assert same < 81 * 3 / 25, f"{same} of 81 moved alike, 1 in 25 is chance"


def test_every_shift_and_side_is_as_likely() -> None:
    data = Numbered(flip=True, translate=1)
    image = torch.arange(25, dtype=torch.uint8).view(1, 1, 5, 5).expand(20_000, -1, -1, -1)
    draws = torch.rand(20_000, 7, generator=torch.Generator().manual_seed(0))
    _, counts = data.change(image, draws).flatten(1).unique(dim=0, return_counts=True)
    assert len(counts) == 18  # 9 shifts, each mirrored or not
    assert (counts.double() / 20_000 - 1 / 18).abs().max() < 5 * (1 / 18 / 20_000) ** 0.5


def test_training_images_are_normalised() -> None:
    data = placed(Numbered())
    image = torch.stack([*samples(data.train_dataloader()).values()]).double()
    torch.testing.assert_close(image.mean(dim=(0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(image.var(dim=(0, 2, 3), correction=0), torch.ones(3).double(), rtol=1e-5, atol=0)


def test_mean_and_deviation() -> None:
    images = torch.randint(0, 256, (5000, 2, 3, 3), generator=torch.Generator().manual_seed(0)).byte()
    mean, deviation = mean_and_deviation(images)
    values = images.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.double(), values.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(deviation.double(), values.std(1, correction=0), rtol=1e-6, atol=0)
    assert mean_and_deviation(torch.full((2, 1, 2, 2), 9).byte())[1].tolist() == [1.0]


def test_blanked_square_has_the_mean() -> None:
    data = placed(Numbered(cutout=4))
    blank = torch.stack([*samples(data.train_dataloader()).values()])
    hidden = (blank == 0).all(dim=1).flatten(1).sum(1)
    assert hidden.min() >= 4, "a corner of it at least"
    assert hidden.max() == 16


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("translate", -1, "translate: expected at least 0 pixels, got -1"),
        ("cutout", -2, "cutout: expected at least 0 pixels, got -2"),
        ("crop", 0.0, r"crop: expected a share in \(0, 1\], got 0.0"),
        ("val_share", 1.0, r"val_share: expected a share in \(0, 1\), got 1.0"),
    ],
)
def test_options_out_of_range(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Numbered(**{name: value})


def test_few_training_images_are_the_same_for_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = samples(placed(Numbered(num_train=30)).train_dataloader())
    assert len(few) == 30
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    assert samples(placed(Numbered(num_train=30)).train_dataloader()).keys() == few.keys()
    assert few.keys() < samples(placed(Numbered()).train_dataloader()).keys()
    for count in (0, 82):
        with pytest.raises(ValueError, match=f"num_train: expected 1 to 81 images, got {count}"):
            placed(Numbered(num_train=count))


@pytest.mark.parametrize("crop", [0.3, 0.7, 0.95])
def test_crops_take_no_less_than_their_share(crop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def record(image: Tensor, top: Tensor, left: Tensor, high: Tensor, wide: Tensor) -> Tensor:
        taken.append(high * wide / (12 * 10))
        assert (top >= 0).all()
        assert (top + high <= 12 + 1e-4).all()
        assert (left + wide <= 10 + 1e-4).all()
        return image

    monkeypatch.setattr("playbook.data.resident.resized_crop", record)
    list(placed(Numbered(crop=crop)).train_dataloader())
    share = torch.cat(taken)
    assert crop - 1e-5 <= share.min() < crop + 0.1
    assert 1 - 0.1 < share.max() <= 1 + 1e-5


def test_translation_by_more_than_the_image() -> None:
    with pytest.raises(ValueError, match="translate: expected less than the image size of 10 pixels, got 10"):
        placed(Numbered(translate=10))


@pytest.mark.parametrize("num", [0, 1])
def test_too_few_images(num: int) -> None:
    images, targets = torch.zeros(num, 1, 8, 8).byte(), torch.zeros(num).long()
    with pytest.raises(UserError, match=f"^--data: expected at least 2 images to train and validate with, got {num}$"):
        Numbered().hold((images, targets), (images, targets))


def test_classes_have_the_numbers_of_a_checkpoint() -> None:
    def data(classes: list[str]) -> ResidentImages:
        images, targets = torch.zeros(9, 1, 4, 4).byte(), torch.arange(9) % 3
        data = ResidentImages(batch_size=4)
        data.facts = {"classes": ["cat", "dog", "owl", "yak"]}
        data.hold((images, targets), (images, targets), classes)
        return data

    test_set: Any = data(["owl", "cat", "yak"]).test_set
    assert [int(test_set[index][1]) for index in range(9)] == [2, 0, 3] * 3
    with pytest.raises(UserError, match=r"ResidentImages has the class ow, but the checkpoint has cat, .*Nearest: owl"):
        data(["ow", "cat", "yak"])


def test_test_images_of_another_size() -> None:
    train, test = ((torch.zeros(4, 1, side, side).byte(), torch.zeros(4).long()) for side in (28, 14))
    with pytest.raises(UserError, match=r"expected test images of 1 × 28 × 28 values .*, got 1 × 14 × 14$"):
        Numbered().hold(train, test)


def test_changes_leave_the_generators_alone() -> None:
    state = torch.get_rng_state()
    list(placed(Numbered(**CHANGES)).train_dataloader())
    assert torch.equal(torch.get_rng_state(), state)
