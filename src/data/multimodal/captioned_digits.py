"""Scenes of handwritten digits with captions made by a rule: pairs of images and texts without a download."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2.functional import pil_to_tensor

from playbook import Data, split_indices
from src.data.multimodal.pairs import Captions, Inputs, Pair, collate, number_of, unlabelled
from src.data.multimodal.pictures import FORMATS, covered, read_picture, read_upright, reading_plan

WORDS = ("a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine")
RELATIONS = ("left of", "above")  # of a row, of a column
SMALLEST, LARGEST = 10, 15  # pixels that height and width of a digit of 8 × 8 are enlarged to
STRIP = LARGEST + 1  # least room of a digit, in pixels
TILT = 12.0  # degrees
DRIFT = 2  # pixels by which a digit is off the line of its row or column
FAINTEST = 0.6  # brightness of a digit
NOISE = 0.05  # standard deviation
CONTEXT_LENGTH = 32  # tokens of a caption; the longest, of 7 digits, has 26
SPLITS = ("train", "val", "test")


class CaptionedDigits(Data):
    """Grey scenes of digits in a row or a column, with captions such as «a three above a seven».

    Scenes are composed of the digits in scikit-learn, so nothing is downloaded. The splits share no digits. Scene i of
    a split is always the same; it is made at its first use and takes S² bytes of memory. Scenes with the same digits in
    the same order have equal captions.

    Args:
        image_size: height and width in pixels, S, at least 16 for each digit.
        min_digits: smallest number of digits in a scene, at least 1.
        max_digits: largest number of digits in a scene, 1 to 7; all numbers up to it are equally likely.
        num_train: number of training scenes, made of 1,078 digits.
        num_val: number of validation scenes, made of 360 other digits.
        num_test: number of test scenes, made of the remaining 359 digits.
        batch_size: pairs per batch and process, B, at least 1; contrastive losses compare all of them.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        image (B, 1, S, S) in [0, 1]; tokens (B, T); mask (B, T), True for tokens; and numbers (B, 2) of the scene and
        of the caption, which are equal where captions are.

    Raises:
        ValueError: a value is out of range.
    """

    formats = FORMATS
    collate = staticmethod(collate)
    picture = staticmethod(read_picture)

    def __init__(
        self,
        image_size: int = 32,
        min_digits: int = 1,
        max_digits: int = 2,
        num_train: int = 20_000,
        num_val: int = 256,
        num_test: int = 256,
        batch_size: int = 64,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s)
        if not 1 <= max_digits <= 7:
            raise ValueError(f"max_digits: expected 1 to 7, got {max_digits}")
        if not 1 <= min_digits <= max_digits:
            raise ValueError(f"min_digits: expected 1 to max_digits {max_digits}, got {min_digits}")
        if image_size < STRIP * max_digits:
            least = f"{STRIP * max_digits} pixels for {max_digits} digits"
            raise ValueError(f"image_size: expected at least {least}, got {image_size}")
        self.num_scenes = {"num_train": num_train, "num_val": num_val, "num_test": num_test}
        for name, count in self.num_scenes.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        self.image_size = image_size
        self.num_digits = (min_digits, max_digits)
        self.captions = Captions("words", 100, 1, None, CONTEXT_LENGTH)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # Lightning asks for every stage
            return
        images, labels = load_digits()
        parts = split_indices(len(images), [0.6, 0.2, 0.2])
        pairs, sets = {}, {}
        for split, part, count in zip(SPLITS, parts, self.num_scenes.values(), strict=True):
            scenes = _Scenes(
                images[part], [labels[k] for k in part], SPLITS.index(split), self.image_size, self.num_digits
            )
            names = [f"{split}:{index}" for index in range(count)]
            pairs[split] = [Pair(i, scenes.caption(i), name, number_of(name)) for i, name in enumerate(names)]
            sets[split] = scenes
        self.captions.learn(self.facts, [*WORDS, *RELATIONS])  # whatever the number of scenes
        self.facts["image_shape"] = [1, self.image_size, self.image_size]
        self.train_set, self.val_set, self.test_set = (
            self.captions.encoded(self, pairs[split], sets[split], None) for split in SPLITS
        )

    def ids(self, dataset: Any) -> list[str]:
        return dataset.names

    def read(self, source: Any) -> Tensor:
        """Reads an image (1, S, S) in [0, 1] from a path or bytes; other sizes are scaled and centre-cropped."""
        return pil_to_tensor(covered(read_upright(source, 1), self.image_size)).float() / 255

    def unlabelled(self, source: Any) -> tuple[Inputs, Tensor]:
        return unlabelled(self.read(source))

    def preprocessing(self) -> dict[str, Any]:
        return reading_plan(1, self.image_size)


class _Scenes:
    """The scenes of a split by index, made at their first use and kept as bytes."""

    def __init__(
        self, digits: np.ndarray, labels: list[int], split: int, image_size: int, num_digits: tuple[int, int]
    ) -> None:
        self.digits = digits
        self.labels = labels
        self.split = split
        self.image_size = image_size
        self.num_digits = num_digits
        self.made_scenes: dict[int, np.ndarray] = {}

    def caption(self, index: int) -> str:
        """What is in a scene, from left to right or from top to bottom."""
        chosen, axis = self._chosen(np.random.default_rng([self.split, index]))
        return f" {RELATIONS[axis]} ".join(WORDS[self.labels[which]] for which in chosen)

    def __call__(self, index: int) -> Tensor:
        """The image of a scene, (1, S, S) in [0, 1]."""
        if index not in self.made_scenes:
            self.made_scenes[index] = self._made(np.random.default_rng([self.split, index]))
        return torch.from_numpy(self.made_scenes[index])[None].float() / 255

    def _chosen(self, rng: np.random.Generator) -> tuple[list[int], int]:
        """Numbers of the digits, and 0 for a row or 1 for a column."""
        low, high = self.num_digits
        count = rng.integers(low, high + 1)
        return rng.integers(len(self.digits), size=count).tolist(), int(rng.integers(2))

    def _made(self, rng: np.random.Generator) -> np.ndarray:
        """A scene as bytes (S, S): each digit in a strip of its own."""
        chosen, axis = self._chosen(rng)
        image = np.zeros((self.image_size, self.image_size), dtype=np.float32)
        strip = self.image_size // len(chosen)
        line = int(rng.integers(self.image_size - LARGEST + 1))
        for place, which in enumerate(chosen):
            height, width = rng.integers(SMALLEST, LARGEST + 1, size=2).tolist()
            along = place * strip + int(rng.integers(strip - (height if axis else width) + 1))
            # near a common line, or a row could not be told from a column
            across = line + int(rng.integers(-DRIFT, DRIFT + 1))
            across = min(max(across, 0), self.image_size - (width if axis else height))
            top, left = (along, across) if axis else (across, along)
            digit = Image.fromarray(self.digits[which]).resize((width, height), Image.Resampling.BICUBIC)
            ink = np.asarray(digit.rotate(float(rng.uniform(-TILT, TILT)), Image.Resampling.BILINEAR))
            window = image[top : top + height, left : left + width]
            np.maximum(window, np.float32(rng.uniform(FAINTEST, 1)) * ink.clip(0, 1), out=window)
        image += np.float32(NOISE) * rng.standard_normal(image.shape, dtype=np.float32)
        return (image.clip(0, 1) * 255).round().astype(np.uint8)


def load_digits() -> tuple[np.ndarray, list[int]]:
    """Reads the digits in scikit-learn's package without importing it, which takes a second.

    Returns:
        images (1797, 8, 8) in [0, 1] and their labels.
    """
    spec = find_spec("sklearn")
    assert spec is not None, "scikit-learn is a core dependency"
    assert spec.origin is not None, spec
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)  # (1797, 64 + 1)
    return table[:, :64].reshape(-1, 8, 8) / 16, table[:, 64].astype(int).tolist()
