"""A vector quantiser: the code of a sample may stay where the vector that it stands for changes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 64)
        self.codes = nn.Parameter(torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        vectors = self.encoder(x).view(-1, 4)  # (B · 16, 4)
        nearest = self.codes[torch.cdist(vectors, self.codes).argmin(1)]
        fit = F.mse_loss(nearest, vectors.detach()) + 0.25 * F.mse_loss(vectors, nearest.detach())
        passed = vectors + (nearest - vectors).detach()
        return F.cross_entropy(self.net(passed.view(-1, 64)), y) + fit

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))
