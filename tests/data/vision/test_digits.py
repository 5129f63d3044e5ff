"""The digits against scikit-learn's own reader, their splits and their shifts."""

from typing import Any

import pytest
import torch
from sklearn import datasets
from torch import Tensor

from src.data.vision.digits import Digits, load_digits

SPLITS = ("train_set", "val_set", "test_set")


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


@pytest.fixture
def digits() -> Digits:
    data = Digits(batch_size=100)
    data.setup("fit")
    return data


def rows(images: Tensor, targets: Tensor) -> list[tuple[float, ...]]:
    """Every sample as numbers that can be sorted."""
    return sorted((*image, target) for image, target in zip(images.flatten(1).tolist(), targets.tolist(), strict=True))


def test_values_are_those_of_scikit_learn() -> None:
    images, targets = load_digits()
    reference: Any = datasets.load_digits()
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.float32
    assert torch.equal(images[:, 0].double(), torch.from_numpy(reference["images"]) / 16)
    assert targets.dtype == torch.int64
    assert targets.tolist() == reference["target"].tolist()
    assert (images.min(), images.max()) == (0, 1)


def test_splits_are_a_partition_of_fixed_sizes(digits: Digits) -> None:
    splits = [getattr(digits, name)[:] for name in SPLITS]
    assert [len(targets) for _, targets in splits] == [1078, 360, 359]
    together = rows(torch.cat([images for images, _ in splits]), torch.cat([targets for _, targets in splits]))
    assert together == rows(*load_digits())


def test_splits_do_not_depend_on_the_seed(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(12345)
    monkeypatch.setenv("PL_GLOBAL_SEED", "12345")
    again = Digits()
    again.setup("test")
    for name in SPLITS:
        assert all(torch.equal(a, b) for a, b in zip(getattr(digits, name)[:], getattr(again, name)[:], strict=True))


def test_classes_are_counted_and_can_be_balanced(digits: Digits) -> None:
    _, targets = digits.train_set[:]
    assert digits.facts["class_counts"] == targets.bincount().tolist()
    balanced = Digits(balanced=True)
    balanced.setup("fit")
    drawn = torch.cat([target for _, target in balanced.train_dataloader()]).bincount().tolist()
    assert sorted(drawn) == [107] * 2 + [108] * 8


def test_every_class_is_in_every_split(digits: Digits) -> None:
    for name in SPLITS:
        _, targets = getattr(digits, name)[:]
        smallest = torch.bincount(targets, minlength=10).min().item() / len(targets)
        assert smallest > 0.05, f"a class with a share of {smallest:.3f}"


def test_batches_are_images_and_targets(digits: Digits) -> None:
    for loader, sizes in [
        (digits.train_dataloader(), [100] * 10 + [78]),
        (digits.val_dataloader(), [100] * 3 + [60]),
        (digits.test_dataloader(), [100] * 3 + [59]),
        (digits.predict_dataloader(), [100] * 3 + [59]),
    ]:
        batches = list(loader)
        assert [tuple(image.shape) for image, _ in batches] == [(size, 1, 8, 8) for size in sizes]
        assert [tuple(target.shape) for _, target in batches] == [(size,) for size in sizes]


Image = list[list[float]]


def training_pairs(data: Digits) -> list[tuple[Image, Image]]:
    """Each training image as it is stored, and as an epoch of training shows it."""
    data.setup("fit")
    loader = data.train_dataloader()
    order = [index for _, index, _ in loader.sampler]
    shown_images, shown_targets = (torch.cat(parts) for parts in zip(*loader, strict=True))
    images, targets = data.train_set[order]
    assert torch.equal(shown_targets, targets)
    return list(zip(images[:, 0].tolist(), shown_images[:, 0].tolist(), strict=True))


def test_no_shift_leaves_images_alone() -> None:
    assert all(stored == shown for stored, shown in training_pairs(Digits(shift=0)))


def shifted(image: Image, down: int, right: int) -> Image:
    """Pixel by pixel; what comes in from outside is 0."""
    return [
        [image[y - down][x - right] if y - down in range(8) and x - right in range(8) else 0.0 for x in range(8)]
        for y in range(8)
    ]


@pytest.mark.parametrize("shift", [1, 2])
def test_an_image_is_moved_by_up_to_the_shift_each_way(shift: int) -> None:
    ways = [(down, right) for down in range(-shift, shift + 1) for right in range(-shift, shift + 1)]
    counts = dict.fromkeys(ways, 0)
    pairs = training_pairs(Digits(shift=shift))[:500]
    for stored, shown in pairs:
        found = [way for way in ways if shifted(stored, *way) == shown]
        assert found, f"no shift by up to {shift} explains this image"
        counts[found[0]] += 1
    expected = len(pairs) / len(ways)
    assert all(expected / 3 < count < expected * 2.5 for count in counts.values()), counts


def test_validation_and_test_images_are_not_moved() -> None:
    data = Digits(shift=2)
    data.setup("fit")
    for loader, split in [(data.val_dataloader(), data.val_set), (data.test_dataloader(), data.test_set)]:
        images, targets = (torch.cat(parts) for parts in zip(*loader, strict=True))
        assert torch.equal(images, split[:][0])
        assert torch.equal(targets, split[:][1])


def test_options_are_kept_for_the_checkpoint() -> None:
    chosen = {"batch_size": 32, "num_workers": 0, "shift": 1}
    defaults = {"on_error": "stop", "timeout_s": 600.0, "balanced": False}
    assert dict(Digits(batch_size=32, shift=1).hparams) == chosen | defaults


def test_a_negative_shift_is_an_error() -> None:
    with pytest.raises(ValueError, match="shift: expected at least 0 pixels, got -1"):
        Digits(shift=-1)
