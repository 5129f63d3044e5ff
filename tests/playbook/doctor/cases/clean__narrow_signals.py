from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Classifier


class Model(Classifier):
    """Sensors as channels: along a beam, each with three axes over time, and strain gauges with one value."""

    def __init__(self) -> None:
        super().__init__()
        self.axes = nn.Conv2d(12, 16, 3, padding=1)
        self.strain = nn.Conv2d(12, 16, (5, 1), padding=(2, 0))
        self.net = nn.Sequential(nn.Linear(32, 3))

    def forward(self, x: Any) -> Tensor:
        moved, strain = x
        parts = [F.relu(self.axes(moved)).mean(dim=(2, 3)), F.relu(self.strain(strain)).mean(dim=(2, 3))]
        return self.net(torch.cat(parts, dim=1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        *x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Data(pl.LightningDataModule):
    """A wave along the beam, of another frequency for each class; neighbours move alike, axes do not."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(3, (480,), generator=generator)
        time, sensor = torch.linspace(0, 1, 32)[:, None], torch.linspace(0, 1, 12)[:, None, None]
        phase = 6.28 * torch.rand(480, 1, 1, 3, generator=generator)
        wave = torch.sin(4.0 * (1 + y[:, None, None, None]) * time - 2.0 * sensor + phase)
        moved = 1.4 * wave + 0.1 * torch.randn(wave.shape, generator=generator)
        strain = 1.4 * wave[..., :1] + 0.1 * torch.randn(wave[..., :1].shape, generator=generator)
        self.parts = [TensorDataset(moved[part], strain[part], y[part]) for part in (slice(400), slice(400, None))]

    def train_dataloader(self) -> Any:
        return DataLoader(self.parts[0], batch_size=20, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.parts[1], batch_size=20)
