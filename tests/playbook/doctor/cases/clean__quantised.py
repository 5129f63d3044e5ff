from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """An autoencoder through a codebook, of which an untrained encoder meets one entry only."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 16, 4, stride=2, padding=1), nn.SiLU(), nn.Conv1d(16, 4, 1), nn.Tanh())
        self.entries = nn.Parameter(torch.rand(16, 4) - 0.5)
        self.decode = nn.ConvTranspose1d(4, 1, 4, stride=2, padding=1)

    def rebuilt(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.net(x).transpose(1, 2)
        q = F.embedding(torch.cdist(z.detach(), self.entries.detach()).argmin(dim=-1), self.entries)
        penalty = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.decode((z + (q - z).detach()).transpose(1, 2)), penalty

    def step(self, batch: Any) -> Tensor:
        rebuilt, penalty = self.rebuilt(batch[0])
        return F.mse_loss(rebuilt, batch[0]) + penalty


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        start, time = 6 * torch.rand(500, 1), torch.linspace(0, 12, 32)
        waves = 1.4 * torch.sin(start + time).unsqueeze(1)
        self.train_set, self.val_set = TensorDataset(waves[:400]), TensorDataset(waves[400:])
