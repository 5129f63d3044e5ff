"""Players that are clipped in turns, by a helper that clips both: at first the critic has no gradient."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return []  # type: ignore[return-value]  # Lightning's way of leaving it out


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        fake = self.generator(torch.randn(len(real), 2).type_as(real))
        turn = min(batch_idx % 3, 1)
        optimizer = self.optimizers()[turn]  # type: ignore[index]  # there are two
        self.toggle_optimizer(optimizer)
        loss = -self.critic(fake).mean()
        if turn == 1:
            loss = self.critic(fake.detach()).mean() - self.critic(real).mean()
        optimizer.zero_grad()
        self.manual_backward(loss)
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)
        optimizer.step()
        self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> Any:
        return [torch.optim.RMSprop(net.parameters(), lr=5e-5) for net in (self.generator, self.critic)]
