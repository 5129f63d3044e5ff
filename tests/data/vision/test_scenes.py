"""Scenes: where their digits come from, and that boxes, masks and captions tell the same story."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.ops import box_iou

from src.data.vision.digits import Digits
from src.data.vision.scenes import OVERLAP, WORDS, DigitScenes, _enlarged, describe

SPLITS = ("train_set", "val_set", "test_set")


def scenes(target: Any = "boxes", **options: Any) -> DigitScenes:
    data = DigitScenes(target, **{"num_train": 60, "num_val": 20, "num_test": 20, **options})
    data.setup("fit")
    return data


def sets(data: Any) -> list[Any]:
    return [getattr(data, name) for name in SPLITS]


def test_digits_are_those_of_the_same_split_of_digits() -> None:
    """So no digit of a test scene is in a training scene."""
    digits = Digits()
    digits.setup("fit")
    for part, whole in zip(sets(scenes()), sets(digits), strict=True):
        images, labels = whole[:]
        assert torch.equal(torch.from_numpy(part.digits[0]), images)
        assert part.digits[1] == labels.tolist()


def test_a_scene_is_a_function_of_its_split_and_index(monkeypatch: pytest.MonkeyPatch) -> None:
    first = scenes("masks")
    monkeypatch.setenv("PL_GLOBAL_SEED", "12345")
    torch.manual_seed(12345)
    again = scenes("masks", num_train=10, num_val=1, num_test=5)
    for part, other in zip(sets(first), sets(again), strict=True):
        for index in reversed(range(len(other))):
            assert all(torch.equal(a, b) for a, b in zip(part[index], other[index], strict=True))
            assert all(torch.equal(a, b) for a, b in zip(part[index], part[index], strict=True))


def test_no_two_scenes_are_the_same() -> None:
    images = [part[index][0] for part in sets(scenes()) for index in range(len(part))]
    assert len({image.numpy().tobytes() for image in images}) == 100


@pytest.mark.parametrize("size", [(64, 64), (28, 100)])
def test_boxes_are_tight_around_the_ink_of_their_class(size: tuple[int, int]) -> None:
    for boxed, masked in zip(
        sets(scenes("boxes", image_size=size)), sets(scenes("masks", image_size=size)), strict=True
    ):
        for index in range(len(boxed)):
            image, target = boxed[index]
            same_image, mask = masked[index]
            assert torch.equal(image, same_image)
            assert image.shape == (1, *size)
            covered = torch.zeros(size, dtype=torch.bool)
            for box, label in zip(target["boxes"].tolist(), target["labels"].tolist(), strict=True):
                left, top, right, bottom = map(int, box)
                assert 0 <= left < right <= size[1]
                assert 0 <= top < bottom <= size[0]
                ink = mask[top:bottom, left:right] == label + 1
                for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]):
                    assert edge.any(), f"scene {index}: the box of a {label} is too large"
                covered[top:bottom, left:right] |= ink
            assert torch.equal(covered, mask > 0), f"scene {index}: ink outside of the boxes of its class"


def test_digits_are_brighter_than_all_else() -> None:
    part = scenes("masks").train_set
    for index in range(60):
        image, mask = part[index]
        assert 0 <= image.min() < image.max() <= 1
        assert image[0][mask > 0].mean() > 0.55
        assert image[0][mask == 0].mean() < 0.35


def test_numbers_and_classes_are_drawn_evenly() -> None:
    data = scenes(num_train=600, max_digits=3, image_size=(96, 96))
    targets = [data.train_set[index][1] for index in range(600)]
    counts = torch.bincount(torch.tensor([len(target["labels"]) for target in targets]), minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 150, counts
    labels = torch.cat([target["labels"] for target in targets]).bincount(minlength=10)
    assert labels.min() > 0.07 * labels.sum(), labels


def test_digits_overlap_little() -> None:
    data = scenes(max_digits=6)
    pairs = [
        box_iou(boxes, boxes).fill_diagonal_(0).max() for boxes in (data.train_set[i][1]["boxes"] for i in range(60))
    ]
    assert 0 < max(pairs) <= OVERLAP


@pytest.mark.parametrize("size", [12, 17, 28])
def test_digits_are_enlarged_bicubically(size: int) -> None:
    digit = scenes().train_set.digits[0][0, 0]  # type: ignore[attr-defined]
    whole = interpolate(torch.from_numpy(digit)[None, None], size=(size, size), mode="bicubic")[0, 0]
    ink = (3 * whole - 0.7).clamp(0, 1)
    rows, columns = ((ink >= 0.5).any(dim).nonzero() for dim in (1, 0))
    expected = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    torch.testing.assert_close(torch.from_numpy(_enlarged(digit, size)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("digits", "caption"),
    [
        ([(7, (0, 0, 10, 10))], "a seven"),
        ([(7, (20, 0, 30, 10)), (3, (0, 5, 10, 15))], "a three left of a seven"),
        ([(8, (2, 30, 12, 40)), (1, (0, 0, 10, 10))], "a one above an eight"),
        ([(8, (2, 0, 12, 10)), (1, (0, 30, 10, 40))], "a one below an eight"),
        ([(2, (20, 0, 30, 10)), (0, (0, 0, 10, 10)), (4, (25, 30, 35, 40))], "a zero left of a two above a four"),
        ([(2, (0, 0, 10, 10)), (5, (10, 10, 20, 20))], "a two left of a five"),
    ],
)
def test_captions_name_digits_from_left_to_right(digits: list[Any], caption: str) -> None:
    assert describe(digits) == caption


def test_captions_tell_of_the_boxes() -> None:
    boxed, captioned = scenes("boxes").val_set, scenes("captions").val_set
    for index in range(20):
        image, target = boxed[index]
        [sample] = captioned[index]
        assert torch.equal(sample["image"], image)
        digits = list(zip(target["labels"].tolist(), map(tuple, target["boxes"].int().tolist()), strict=True))
        assert sample["text"] == describe(digits)
        assert sum(sample["text"].count(word) for word in WORDS) == len(digits)


def test_batches_of_boxes_are_lists() -> None:
    images, targets = next(iter(scenes(batch_size=5).val_dataloader()))
    assert [image.shape for image in images] == [(1, 64, 64)] * 5
    assert [target["image_id"] for target in targets] == [0, 1, 2, 3, 4]
    for target in targets:
        assert target["boxes"].dtype == torch.float32
        assert target["labels"].dtype == torch.int64
        assert target["boxes"].shape == (len(target["labels"]), 4)


def test_batches_of_masks_are_tensors() -> None:
    batch: list[Tensor] = next(iter(scenes("masks", batch_size=5).val_dataloader()))
    assert [part.shape for part in batch] == [(5, 1, 64, 64), (5, 64, 64)]
    assert [part.dtype for part in batch] == [torch.float32, torch.int64]


def test_batches_of_captions_are_images_and_sentences() -> None:
    [batch] = next(iter(scenes("captions", batch_size=5).val_dataloader()))
    assert batch["image"].shape == (5, 1, 64, 64)
    assert len(set(batch["text"])) == 5


def test_options_are_kept_for_the_checkpoint() -> None:
    data = DigitScenes("masks", image_size=[64, 96], batch_size=8)
    assert data.hparams["target"] == "masks"
    assert data.hparams["image_size"] == [64, 96]
    assert data.hparams["batch_size"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "mask"}, "target: expected one of boxes, masks, captions, got mask"),
        ({"image_size": [64]}, r"image_size: expected \[H, W\] of at least 28 pixels each, got \[64\]"),
        ({"image_size": [64, 27]}, r"image_size: expected \[H, W\] of at least 28 pixels each, got \[64, 27\]"),
        ({"max_digits": 0}, "max_digits: expected 1 to 255, got 0"),
        ({"max_digits": 256}, "max_digits: expected 1 to 255, got 256"),
        ({"num_val": 0}, "num_val: expected at least 1, got 0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DigitScenes(**arguments)
