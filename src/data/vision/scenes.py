"""Scenes composed of scikit-learn's handwritten digits, for detection, segmentation and captions."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, default_collate
from torchvision.transforms.v2 import functional
from torchvision.transforms.v2.functional import pil_to_tensor

from playbook import Data, UserError, split_indices
from src.data.vision.detection import detection_collate
from src.data.vision.digits import load_digits
from src.data.vision.images import FORMATS, read_image, read_picture, reading_of, with_mode

SMALLEST, LARGEST = 12, 28  # pixels that a digit of 8 × 8 is enlarged to, 1.5 to 3.5 times
OVERLAP = 0.1  # share of the smaller of two digits' boxes that the other may cover
TRIES = 20  # to find a place for a digit; one that finds none is left out
FAINTEST = 0.6  # of a digit; all else stays below
NOISE = 0.04  # standard deviation
# of a stroke, from and to: its start as a share of H and W, its way in pixels, its brightness
STROKES = ((0, 0, -15, -15, 0.3), (1, 1, 15, 15, 0.45))
WORDS = ["a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine"]
Digit = tuple[int, tuple[int, int, int, int]]  # label and box (left, top, right, bottom)


class DigitScenes(Data):
    """Grey scenes of up to six real handwritten digits on a cluttered background, with boxes, masks or captions.

    Scenes are composed of the digits in scikit-learn, so nothing is downloaded. The splits share no digits. Scene i of
    a split is always the same; it is made at its first use, in about 1 ms, and takes 2 H W bytes of memory.

    Args:
        target: boxes for detection, masks for segmentation, captions for pairs of an image and a text.
        image_size: height and width in pixels, [H, W], at least 28 each.
        max_digits: largest number of digits in a scene, 1 to 255; all numbers from 1 to it are equally likely.
        num_train: number of training scenes, made of 1,078 digits.
        num_val: number of validation scenes, made of 360 other digits.
        num_test: number of test scenes, made of the remaining 359 digits.
        batch_size: samples per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        boxes: list of B images (1, H, W) in [0, 1], list of B dicts: boxes (N, 4) as left, top, right, bottom in
        pixels, labels (N,) from 0 to 9, image_id; masks: image (B, 1, H, W), mask (B, H, W), 0 for the background and
        1 + digit; captions: a dict of image (B, 1, H, W) and text, a list of B sentences, in a list of one.

    Raises:
        ValueError: a value is out of range.
    """

    formats = FORMATS
    picture = staticmethod(read_picture)

    def __init__(
        self,
        target: Literal["boxes", "masks", "captions"] = "boxes",
        image_size: Sequence[int] = (64, 64),
        max_digits: int = 6,
        num_train: int = 2000,
        num_val: int = 400,
        num_test: int = 400,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s)
        if target not in TARGETS:
            raise ValueError(f"target: expected one of {', '.join(TARGETS)}, got {target}")
        if len(image_size) != 2 or min(image_size) < LARGEST:
            raise ValueError(f"image_size: expected [H, W] of at least {LARGEST} pixels each, got {list(image_size)}")
        self.num_scenes = {"num_train": num_train, "num_val": num_val, "num_test": num_test}
        for name, count in self.num_scenes.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if not 1 <= max_digits <= 255:  # they are numbered in bytes
            raise ValueError(f"max_digits: expected 1 to 255, got {max_digits}")
        self.target = target
        self.image_size = (image_size[0], image_size[1])
        self.max_digits = max_digits
        self.collate = detection_collate if target == "boxes" else default_collate
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        images, labels = load_digits()
        splits = split_indices(len(images), [0.6, 0.2, 0.2])  # as Digits cuts them
        self.train_set, self.val_set, self.test_set = (
            _Scenes((images[part].numpy(), labels[part].tolist()), number, num_scenes, self)
            for number, (part, num_scenes) in enumerate(zip(splits, self.num_scenes.values(), strict=True))
        )
        digits = [str(digit) for digit in range(10)]
        self.facts["image_shape"] = [1, *self.image_size]
        if self.target != "captions":
            self.facts["classes"] = digits if self.target == "boxes" else ["ground", *digits]

    def ids(self, dataset: Any) -> list[str]:
        return [f"{('train', 'val', 'test')[dataset.split]}:{index}" for index in range(len(dataset))]

    def read(self, source: Any, resize: bool = True) -> Tensor:
        """Reads an image (1, H, W) in [0, 1] from a path or bytes; without resize, in the size of its file."""
        image = pil_to_tensor(with_mode(read_image(source), "L")).float() / 255
        return functional.resize(image, list(self.image_size), antialias=True) if resize else image

    def unlabelled(self, source: Any, resize: bool = True) -> Any:
        if self.target == "captions":
            raise UserError("--input: pairs of an image and a caption cannot be read from one file")
        width, height = read_image(source).size
        size = (width, height) if self.target == "boxes" else torch.tensor([height, width])
        return self.read(source, resize), {"file_size": size}

    def preprocessing(self) -> dict[str, Any] | None:
        if self.target == "captions":
            return None
        return reading_of(1, [{"divide": 255}, {"resize": list(self.image_size)}])


class _Scenes(Dataset):
    """The scenes of a split, made at their first use and kept as bytes."""

    def __init__(self, digits: tuple[np.ndarray, list[int]], split: int, num_scenes: int, data: DigitScenes) -> None:
        self.digits = digits
        self.split = split
        self.num_scenes = num_scenes
        self.image_size = data.image_size
        self.max_digits = data.max_digits
        self.make_sample = TARGETS[data.target]
        self.made_scenes: dict[int, tuple[np.ndarray, np.ndarray, list[int]]] = {}

    def __len__(self) -> int:
        return self.num_scenes

    def __getitem__(self, index: int) -> Any:
        if index not in self.made_scenes:
            self.made_scenes[index] = self._make(np.random.default_rng([self.split, index]))
        image, owner, labels = self.made_scenes[index]
        return self.make_sample(torch.from_numpy(image)[None].float() / 255, owner, labels, index)

    def _make(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Makes a scene as bytes (H, W), the number of the digit of every pixel or 0, and the digits' labels."""
        image = _ground(rng, *self.image_size)
        owner = np.zeros(self.image_size, dtype=np.uint8)
        labels = _place_digits(rng, image, owner, self.digits, int(rng.integers(self.max_digits)) + 1)
        image += np.float32(NOISE) * rng.standard_normal(self.image_size, dtype=np.float32)
        return (image.clip(0, 1) * 255).round().astype(np.uint8), owner, labels


def _place_digits(
    rng: np.random.Generator, image: np.ndarray, owner: np.ndarray, digits: tuple[np.ndarray, list[int]], count: int
) -> list[int]:
    """Paints digits into image and owner, the later over the earlier; returns their labels."""
    labels: list[int] = []
    boxes: list[tuple[int, int, int, int]] = []
    for _ in range(count):
        which = rng.integers(len(digits[0]))
        ink = _enlarged(digits[0][which, 0], int(rng.integers(SMALLEST, LARGEST + 1)))
        height, width = ink.shape
        for _ in range(TRIES):
            top, left = rng.integers(owner.shape[0] - height + 1), rng.integers(owner.shape[1] - width + 1)
            box = (left, top, left + width, top + height)
            if all(_overlap(box, other) <= OVERLAP for other in boxes):
                boxes.append(box)
                labels.append(digits[1][which])
                window = slice(top, top + height), slice(left, left + width)
                image[window] += ink * (rng.uniform(FAINTEST, 1) - image[window])
                owner[window][ink >= 0.5] = len(labels)
                break
    return labels


def _enlarged(digit: np.ndarray, size: int) -> np.ndarray:
    """A digit (8, 8) on size × size pixels with edges about two pixels wide, cut to its ink."""
    matrix = _enlarging(size)
    ink = ((matrix @ digit @ matrix.T - 0.4) * 3 + 0.5).clip(0, 1)
    rows, columns = (np.flatnonzero((ink >= 0.5).any(axis)) for axis in (1, 0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@cache
def _enlarging(size: int) -> np.ndarray:
    """What bicubic interpolation multiplies 8 values with, (size, 8)."""
    return interpolate(torch.eye(8)[None, None], size=(size, 8), mode="bicubic")[0, 0].numpy()


def _overlap(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Area that two boxes share, of the smaller one's."""
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return max(width, 0) * max(height, 0) / smaller


def _ground(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Shades that change slowly, and strokes as wide as a digit's but fainter, (H, W)."""
    shades = torch.from_numpy(rng.uniform(0, 0.3, (1, 1, 4, 4)).astype(np.float32))
    image = interpolate(shades, size=(height, width), mode="bilinear")[0, 0].numpy()
    y, x = (np.arange(size, dtype=np.float32) for size in (height, width))
    for top, left, down, right, shade in rng.uniform(*STROKES, (rng.integers(2, 7), 5)).astype(np.float32):
        dy, dx = y[:, None] - top * height, x - left * width
        along = ((dy * down + dx * right) / (down * down + right * right)).clip(0, 1)  # 0 at the start, 1 at the end
        distance = np.sqrt((dy - along * down) ** 2 + (dx - along * right) ** 2)
        np.maximum(image, shade * (2 - distance).clip(0, 1), out=image)
    return image


def _boxes(owner: np.ndarray, labels: list[int]) -> list[Digit]:
    """Label and tight box of every digit that is visible."""
    digits = []
    for number, label in enumerate(labels, start=1):
        rows, columns = np.nonzero(owner == number)
        if len(rows):
            digits.append((label, (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)))
    return digits


def _with_boxes(image: Tensor, owner: np.ndarray, labels: list[int], index: int) -> Any:
    digits = _boxes(owner, labels)
    boxes = torch.tensor([box for _, box in digits], dtype=torch.float32).view(-1, 4)  # (N, 4)
    return image, {"boxes": boxes, "labels": torch.tensor([label for label, _ in digits]), "image_id": index}


def _with_mask(image: Tensor, owner: np.ndarray, labels: list[int], index: int) -> Any:
    return image, torch.from_numpy(np.array([0, *(1 + label for label in labels)])[owner])  # (H, W)


def _with_caption(image: Tensor, owner: np.ndarray, labels: list[int], index: int) -> Any:
    return ({"image": image, "text": describe(_boxes(owner, labels))},)


def describe(digits: list[Digit]) -> str:
    """Describes digits from left to right, as in «a one above a two left of an eight»."""
    centres = sorted((left + right, top + bottom, label) for label, (left, top, right, bottom) in digits)
    words = [WORDS[centres[0][2]]]
    for (x, y, _), (next_x, next_y, label) in pairwise(centres):
        way = "left of" if next_x - x >= abs(next_y - y) else "above" if next_y > y else "below"
        words.append(f"{way} {WORDS[label]}")
    return " ".join(words)


TARGETS = {"boxes": _with_boxes, "masks": _with_mask, "captions": _with_caption}
