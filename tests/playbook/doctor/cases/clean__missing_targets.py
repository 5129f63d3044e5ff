from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Missing measurements are NaN in the targets, and left out of the loss."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        known = ~y.isnan()
        return F.mse_loss(self(x)[known], y[known])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Data(Blobs):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = x[:, :3] + 0.1 * torch.randn(500, 3, generator=generator)
        y[torch.rand(500, 3, generator=generator) < 0.2] = torch.nan
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
