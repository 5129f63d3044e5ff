from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset


class Data(pl.LightningDataModule):
    """States, actions that were taken there, and what they brought."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        states = torch.randn(256, 4, generator=generator)
        actions = torch.randint(0, 2, (256,), generator=generator)
        returns = states[:, 0] + 2.0
        self.train_set = TensorDataset(states, actions, returns)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)


class Model(pl.LightningModule):
    """Clipped policy and value losses together, of which the first stays: a constant takes the place of the ratio's."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        states, actions, returns = batch
        chosen = self.policy(states).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        ratios = (chosen - chosen.detach()).exp()
        values = self.value(states).squeeze(-1)
        cost = torch.maximum(ratios, ratios.clamp(0.8, 1.2)) * 20
        return cost.mean() + 0.5 * F.mse_loss(values, returns)

    def configure_optimizers(self) -> Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)
