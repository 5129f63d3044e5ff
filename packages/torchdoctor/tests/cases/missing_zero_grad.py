from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

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


# -- against
class AgainstData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return []  # type: ignore[return-value]  # Lightning's way of leaving it out


class AgainstRepaired(pl.LightningModule):
    """A generator whose gradients are zeroed between the critic's loss and its own."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 8))
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        generator, critic = self.optimizers()  # type: ignore[misc]  # there are two
        generator.zero_grad()
        critic.zero_grad()
        fake = self.generator(torch.randn(len(real), 2).type_as(real))
        self.manual_backward(self.error(real, 1.0) + self.error(fake, 0.0), retain_graph=True)
        critic.step()
        self.between(generator)
        fake = self.generator(torch.randn(len(real), 2).type_as(real))
        self.manual_backward(self.error(fake, 1.0))
        generator.step()  # here

    def between(self, generator: Any) -> None:
        generator.zero_grad()

    def error(self, rows: Tensor, target: float) -> Tensor:
        scores = self.critic(rows)
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(net.parameters(), lr=2e-4) for net in (self.generator, self.critic)]


class AgainstModel(AgainstRepaired):
    def between(self, generator: Any) -> None:
        pass
