"""Images at random, for tests that need some in any project."""

import torch
from torch.utils.data import TensorDataset

from playbook import Data


class Squares(Data):
    """Noise of shape (1, 8, 8) in ten classes: 1,437 samples to train, and 360 to validate and test."""

    def __init__(self, batch_size: int = 64) -> None:
        super().__init__(batch_size)
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        images, labels = torch.randn(1797, 1, 8, 8, generator=generator), torch.arange(1797) % 10
        self.train_set = TensorDataset(images[:1437], labels[:1437])
        self.val_set = self.test_set = TensorDataset(images[1437:], labels[1437:])
