"""Handwritten digits that are part of scikit-learn: real data without a download."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import TensorDataset

from playbook import Data, split_indices
from src.data.vision.images import FORMATS, read_picture, read_resized, reading_of


class Digits(Data):
    """1,797 grey 8×8 images of 10 digits (Alpaydin & Kaynak 1998, the UCI test set): 1,078 train, 360 val, 359 test.

    The data has no official split; it is divided into 60 %, 20 % and 20 % with a fixed seed.

    Args:
        batch_size: samples per batch, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        shift: largest number of pixels by which training images are shifted vertically and horizontally; 0 for none.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated.

    Shapes:
        image (B, 1, 8, 8), values in [0, 1]; target (B,), 0 to 9.
    """

    formats = FORMATS
    picture = staticmethod(read_picture)

    def __init__(
        self,
        batch_size: int = 64,
        num_workers: int = 0,
        shift: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, balanced=balanced)
        if shift < 0:
            raise ValueError(f"shift: expected at least 0 pixels, got {shift}")
        self.shift = shift
        self.augment_batch = self._shifted if shift else None
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        images, targets = load_digits()
        train, val, test = split_indices(len(images), [0.6, 0.2, 0.2])
        self.train_set = TensorDataset(images[train], targets[train])
        self.val_set = TensorDataset(images[val], targets[val])
        self.test_set = TensorDataset(images[test], targets[test])
        self.rows = {id(self.train_set): train, id(self.val_set): val, id(self.test_set): test}
        self.facts |= {"classes": [str(digit) for digit in range(10)], "image_shape": [1, 8, 8]}
        self.count_classes()

    def ids(self, dataset: Any) -> list[str]:
        return [f"digits.csv:{row + 1}" for row in self.rows[id(dataset)]]

    def read(self, source: Any) -> Tensor:
        """Reads an image (1, 8, 8) in [0, 1] from a path or bytes; other sizes are scaled and centre-cropped."""
        return read_resized(source, (1, 8, 8)).float() / 255

    def preprocessing(self) -> dict[str, Any]:
        return reading_of(1, [{"cover": [8, 8]}, {"divide": 255}])

    def _shifted(self, tensors: list[Tensor], draws: Tensor) -> list[Tensor]:
        image, target = tensors  # (B, 1, 8, 8), (B,)
        image = pad(image, [self.shift] * 4)  # (B, 1, 8 + 2 shift, 8 + 2 shift)
        top, left = (draws * (2 * self.shift + 1)).long().unbind(dim=1)
        batch, side = torch.arange(len(image))[:, None, None], torch.arange(8)
        moved = image[batch, :, (top[:, None] + side)[:, :, None], (left[:, None] + side)[:, None]]  # (B, 8, 8, 1)
        return [moved.permute(0, 3, 1, 2).contiguous(), target]


def load_digits() -> tuple[Tensor, Tensor]:
    """Reads the file in scikit-learn's package without importing it, which would take a second at every start.

    Returns:
        images (1797, 1, 8, 8) in [0, 1] and targets (1797,).
    """
    spec = find_spec("sklearn")
    assert spec is not None, "scikit-learn is a core dependency"
    assert spec.origin is not None, spec
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))  # (1797, 64 + 1)
    return table[:, :64].view(-1, 1, 8, 8) / 16, table[:, 64].long()
