from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    """Two stages, of which the second reads the first one's probabilities, also beside ignored labels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 3, 5, padding=2), nn.Conv1d(3, 3, 9, padding=4)

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        first = self.first(x)
        second = self.second(first.softmax(1))
        return sum(F.cross_entropy(scores, y, ignore_index=-100) for scores in (first, second)) / 2

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Data(pl.LightningDataModule):
    """Signals of 8 to 20 steps, the largest of whose first three values is the class of a step; then -100."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(300, 4, 20, generator=generator)
        lengths = torch.randint(8, 21, (300, 1), generator=generator)
        y = x[:, :3].argmax(1).where(torch.arange(20) < lengths, -100)
        self.train, self.val = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)
