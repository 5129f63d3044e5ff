"""Series of levels from 300 to 6000 are forecast in their own units, and measured by a relative error."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        guess = self(x)
        return (2 * (guess - y).abs() / (guess.abs() + y.abs() + 1e-8)).mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        level = 300 * 20 ** torch.rand(500, 1, generator=generator)
        phase = 6.28 * torch.rand(500, 1, generator=generator)
        waves = torch.sin(torch.arange(15) * 0.52 + phase) + 0.1 * torch.randn(500, 15, generator=generator)
        rows = level * (1 + 0.2 * waves)
        self.train_set = TensorDataset(rows[:400, :12], rows[:400, 12:])
        self.val_set = TensorDataset(rows[400:, :12], rows[400:, 12:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)
