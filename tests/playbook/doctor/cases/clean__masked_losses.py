from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Values of which many are missing: these are far off in the data, and have no weight in the loss."""

    outputs = 4

    def step(self, batch: Any) -> Tensor:
        x, y, is_known = batch
        return (F.mse_loss(self(x), y, reduction="none") * is_known).sum() / is_known.sum()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = x[:, :4] + 0.1 * torch.randn(500, 4, generator=generator)
        is_known = torch.rand(500, 4, generator=generator) < 0.6
        y = y.masked_fill(~is_known, 9.0)
        data = TensorDataset(x, y, is_known.float())
        self.train_set, self.val_set = torch.utils.data.random_split(data, [400, 100], generator)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)
