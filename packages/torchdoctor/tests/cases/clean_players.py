"""Parts that play against each other, whose losses need not fall and which take turns or come late."""

import os
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier

# -- given_classifier
GivenClassifierData = Blobs


class GivenClassifierModel(Classifier):
    """Learns to disturb a classifier that is given and sure of itself: its losses say nothing of an initialisation."""

    def __init__(self) -> None:
        super().__init__()
        self.given = nn.Linear(8, 3).requires_grad_(False)
        self.given.weight.copy_(20 * torch.eye(3, 8))
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.given(x + self.net(x)), (y + 1) % 3)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), lr=1e-3)


# -- late_adversary
LateAdversaryData = Blobs


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]  # torch declares what it does not need
        return -grad


class LateAdversaryModel(Classifier):
    """Adapts to another domain by an adversary that joins after ten epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.domain = nn.Linear(32, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        features = self.net[:2](torch.cat([x, x + 0.5]))
        domains = self.domain(Reversed.apply(features))
        loss = F.cross_entropy(self.net[2](features[: len(x)]), y)
        if self.current_epoch >= 10:
            loss = loss + 0.1 * F.cross_entropy(domains, torch.arange(2, device=x.device).repeat_interleave(len(x)))
        return loss


# -- domains
class DomainsModel(pl.LightningModule):
    """Adapts to another domain: samples of either come with their domain, and one layer is asked about both."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.classes, self.domains = nn.Linear(32, 3), nn.Linear(32, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y, domain, other_x, other_domain = batch
        features = self.features(x)
        loss = F.cross_entropy(self.classes(features), y)
        here = F.cross_entropy(self.domains(Reversed.apply(features)), domain)
        there = F.cross_entropy(self.domains(Reversed.apply(self.features(other_x))), other_domain)
        return loss + 0.1 * (here + there)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y, *_ = batch
        self.log("val_loss", F.cross_entropy(self.classes(self.features(x)), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class DomainsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = _beside_another(self.train_set), _beside_another(self.val_set)


def _beside_another(samples: Dataset) -> TensorDataset:
    """Samples with their labels and their domain, 0, beside those of domain 1."""
    x, y = samples[:]
    other = torch.randn(len(x), 8, generator=torch.Generator().manual_seed(1)) + 0.5
    return TensorDataset(x, y, torch.zeros_like(y), other, torch.ones_like(y))


# -- players_in_turns
class PlayersInTurnsData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return []  # type: ignore[return-value]  # Lightning's way of leaving it out


class PlayersInTurnsModel(pl.LightningModule):
    """A generator and a critic that take whole steps in turns, the generator first: its step reads no picture."""

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
        optimizer.step()
        self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> Any:
        return [torch.optim.RMSprop(net.parameters(), lr=5e-5) for net in (self.generator, self.critic)]


# -- clipped_players
ClippedPlayersData = PlayersInTurnsData


class ClippedPlayersModel(PlayersInTurnsModel):
    """Players that are clipped in turns, by a hook that clips both: at first the critic has no gradient."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 1.0)


# -- two_players
class TwoPlayersModel(pl.LightningModule):
    """A saturating GAN: the generator's loss is the negative of a cross-entropy, and need not fall."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def judged(self, x: Tensor, real: float) -> Tensor:
        score = self.critic(x)
        return F.binary_cross_entropy_with_logits(score, torch.full_like(score, real))

    def noise(self, x: Tensor) -> Tensor:
        return torch.randn(len(x), 8, device=x.device)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x = batch[0]
        for_generator, for_critic = self.optimizers()
        fake = self.generator(self.noise(x))
        for_critic.zero_grad()
        self.manual_backward(self.judged(x, 1.0) + self.judged(fake.detach(), 0.0))
        for_critic.step()
        self.toggle_optimizer(for_generator)
        for_generator.zero_grad()
        self.manual_backward(-self.judged(fake, 0.0))
        for_generator.step()
        self.untoggle_optimizer(for_generator)

    def configure_optimizers(self) -> Any:
        parts = self.generator, self.critic
        return [torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.9)) for part in parts]


class TwoPlayersData(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        angle = torch.rand(512, generator=torch.Generator().manual_seed(0)) * 6.28
        self.points = TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.points, batch_size=32, shuffle=True)


# -- logged_images
LoggedImagesData = TwoPlayersData


class LoggedImagesModel(TwoPlayersModel):
    """Two players that log images by the logger's experiment, and write files beside the logs, without validation."""

    logger: Any  # TensorBoard's

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self.logger.experiment.add_image("points", self.sampled()[None], self.global_step)

    def on_train_epoch_end(self) -> None:
        with open(os.path.join(self.logger.log_dir, "points", f"{self.current_epoch}.txt"), "w", encoding="utf-8") as f:
            f.write(str(self.sampled()))

    @torch.no_grad()
    def sampled(self) -> Tensor:
        return self.generator(torch.randn(4, 8, device=self.device))
