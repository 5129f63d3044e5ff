"""Handwritten digits that come with scikit-learn."""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from playbook import Data, split_indices


class Handwriting(Data):
    """1,797 grey 8×8 images of 10 digits, cut into 60 %, 20 % and 20 %.

    Args:
        batch_size: samples per batch, B.
        num_workers: loader processes; 0 loads in the main process.

    Shapes:
        image (B, 1, 8, 8), values in [0, 1]; target (B,), 0 to 9.
    """

    def __init__(self, batch_size: int = 64, num_workers: int = 0) -> None:
        super().__init__(batch_size, num_workers)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        digits: Any = load_digits()
        images = torch.from_numpy(digits["images"]).float().unsqueeze(1) / 16  # (1797, 1, 8, 8)
        targets = torch.from_numpy(digits["target"])
        splits = [TensorDataset(images[part], targets[part]) for part in split_indices(len(images), [0.6, 0.2, 0.2])]
        self.train_set, self.val_set, self.test_set = splits
