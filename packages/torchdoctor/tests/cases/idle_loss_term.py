"""A generator whose loss should pass through the critic."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from programs import Blobs


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return []  # type: ignore[return-value]  # Lightning's way of leaving it out


class Repaired(pl.LightningModule):
    """Maps noisy rows to clean ones: by their distance, and by a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        generator, critic = self.optimizers()  # type: ignore[misc]  # there are two
        fake = self.generator(real + 0.5 * torch.randn_like(real))
        critic.zero_grad()
        self.manual_backward(self.error(real, 1.0) + self.error(fake.detach(), 0.0))
        critic.step()
        generator.zero_grad()
        self.manual_backward(self.loss(real, fake))
        generator.step()

    def error(self, rows: Tensor, target: float) -> Tensor:
        scores = self.critic(rows)
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))

    def loss(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.l1_loss(fake, real) + 0.1 * self.error(fake, 1.0)

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(net.parameters(), lr=2e-4) for net in (self.generator, self.critic)]


class Model(Repaired):
    def loss(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.l1_loss(fake, real) + 0.1 * self.error(fake.detach(), 1.0)  # here


# -- alone
AloneData, AloneRepaired = Data, Repaired


class AloneModel(Repaired):
    """The adversarial term is all that the generator has."""

    def loss(self, real: Tensor, fake: Tensor) -> Tensor:
        with torch.no_grad():  # here
            rows = self.generator(real)
        return self.error(rows, 1.0)
