"""Handwritten digits that come with scikit-learn."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from playbook import Data, split_indices


class Digits(Data):
    """1,797 grey 8×8 images of 10 digits, cut into 60 %, 20 % and 20 %.

    Args:
        batch_size: samples per batch, B.
        num_workers: loader processes; 0 loads in the main process.
        shift: pixels by which training images are moved at random.
        on_error: whether a sample that cannot be read stops the run or is skipped.
        timeout_s: seconds without a batch after which a worker counts as hanging.
        balanced: whether to sample every class equally often.

    Shapes:
        image (B, 1, 8, 8), values in [0, 1]; target (B,), 0 to 9.
    """

    def __init__(
        self,
        batch_size: int = 64,
        num_workers: int = 0,
        shift: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error, timeout_s, balanced)
        self.shift = shift
        self.augment = self._moved if shift else None
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        spec = find_spec("sklearn")  # importing it would cost each of many runs a second
        assert spec is not None
        assert spec.origin is not None
        with gzip.open(Path(spec.origin).parent / "datasets/data/digits.csv.gz", "rt") as file:
            table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))  # (1797, 64 + 1)
        images, targets = table[:, :64].view(-1, 1, 8, 8) / 16, table[:, 64].long()
        splits = [TensorDataset(images[part], targets[part]) for part in split_indices(len(images), [0.6, 0.2, 0.2])]
        self.train_set, self.val_set, self.test_set = splits

    def _moved(self, sample: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        image, target = sample  # (1, 8, 8), ()
        down, right = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
        return image.roll((down, right), (1, 2)), target
