from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Goes on where the batch before ended: rows of batches are recordings in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 1))
        self.carry: dict[str, Any] = {}

    def step(self, batch: Any, stage: str) -> Tensor:
        x, y = batch
        states, last = self.rnn(x, self.carry.get(stage))
        self.carry[stage] = last.detach()
        return F.mse_loss(self.net(states)[..., 0], y)

    def on_train_epoch_start(self) -> None:
        self.carry.clear()

    def on_validation_epoch_start(self) -> None:
        self.carry.pop("val", None)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch, "val"))


class Pieces(IterableDataset):
    def __init__(self, seed: int) -> None:
        self.signal = torch.randn(12, 800, 2, generator=torch.Generator().manual_seed(seed))
        level, levels = torch.zeros(12), []
        for moment in self.signal.unbind(1):
            level = 0.9 * level + 0.4 * moment[:, 0]
            levels.append(level)
        self.level = torch.stack(levels, dim=1)

    def __iter__(self) -> Any:
        for start in range(0, 800, 20):
            yield self.signal[:, start : start + 20], self.level[:, start : start + 20]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Pieces(0), batch_size=None)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Pieces(1), batch_size=None)
