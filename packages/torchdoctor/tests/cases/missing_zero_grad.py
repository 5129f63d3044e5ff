from typing import Any

import torch.nn.functional as F

from cases import clean_players
from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        pass  # here


class Repaired(Classifier):
    """Adds up two batches by hand, on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.manual_backward(F.cross_entropy(self(x), y) / 2)
        if batch_idx % 2 == 1:
            self.optimizers().step()
            self.optimizers().zero_grad()


# -- manual
ManualData = Blobs


class ManualModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer = self.optimizers()
        loss = F.cross_entropy(self(x), y)
        self.manual_backward(loss)
        optimizer.step()  # here


class ManualRepaired(ManualModel):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers().zero_grad()
        super().training_step(batch, batch_idx)


# -- players
PlayersData = clean_players.TwoPlayersData
PlayersRepaired = clean_players.TwoPlayersModel


class PlayersModel(PlayersRepaired):
    """Zeroes gradients after each player's step: what the generator's loss leaves in the critic stays."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x = batch[0]
        for_generator, for_critic = self.optimizers()
        self.manual_backward(self.judged(x, 1.0) + self.judged(self.generator(self.noise(x)).detach(), 0.0))
        for_critic.step()  # here
        for_critic.zero_grad()
        self.manual_backward(-self.judged(self.generator(self.noise(x)), 0.0))
        for_generator.step()
        for_generator.zero_grad()
