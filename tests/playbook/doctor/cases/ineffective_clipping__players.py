from typing import Any

import torch
from torch import nn

from tests.playbook.doctor.cases.clean__players_in_turns import Model as Players
from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data"]


class Model(Players):
    """Clips the gradients that the generator's loss leaves at the critic, which are zeroed."""

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


class Repaired(Model):
    def clip_after_generator(self) -> None:
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
