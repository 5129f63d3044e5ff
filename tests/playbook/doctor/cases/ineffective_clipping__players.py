from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    """Clips the gradients that the generator's loss leaves at the critic, which are zeroed."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def clip_after_generator(self) -> None:
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)  # here

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        for_generator, for_critic = self.optimizers()  # type: ignore[misc]  # there are two
        fake = self.generator(torch.randn(len(real), 2).type_as(real))
        for_generator.zero_grad()
        self.manual_backward(-self.critic(fake).mean())
        self.clip_after_generator()
        for_generator.step()
        for_critic.zero_grad()
        self.manual_backward(self.critic(fake.detach()).mean() - self.critic(real).mean())
        for_critic.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.RMSprop(net.parameters(), lr=5e-5) for net in (self.generator, self.critic)]


class Repaired(Model):
    def clip_after_generator(self) -> None:
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
