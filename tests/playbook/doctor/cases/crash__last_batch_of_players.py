from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.cases.clean__two_players import Data as Circle
from tests.playbook.doctor.cases.clean__two_players import Model as Repaired

__all__ = ["Repaired"]


class Data(Circle):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.points, batch_size=48, shuffle=True)


class Model(Repaired):
    """Gives the players their turns by Lightning's switches, which stay where an error leaves them."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        critic = self.optimizers()[1]
        self.toggle_optimizer(critic)
        x = batch[0]
        self.manual_backward(self.judged(x, 1.0) + self.judged(self.mixed(x), 0.0))
        critic.step()
        self.untoggle_optimizer(critic)
        critic.zero_grad()

    def mixed(self, x: Tensor) -> Tensor:
        share = torch.rand(48, 1, device=x.device)
        return share * x + (1 - share) * self.generator(self.noise(x)).detach()  # here
