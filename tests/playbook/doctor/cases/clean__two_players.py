from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
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


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        angle = torch.rand(512, generator=torch.Generator().manual_seed(0)) * 6.28
        self.points = TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.points, batch_size=32, shuffle=True)
