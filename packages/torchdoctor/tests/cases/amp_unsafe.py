from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(logits.sigmoid(), F.one_hot(y, 3).float())  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x), y)


class Repaired(Model):
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(logits.device.type, enabled=False):
            return F.binary_cross_entropy(logits.float().sigmoid(), F.one_hot(y, 3).float())


# -- energy
EnergyData = Blobs


class EnergyRepaired(Classifier):
    """Classes by their squared distance to learned centres."""

    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.out = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.net(x) * self.scale
        h = h / (1e-3 + (h * h).sum(1, keepdim=True).sqrt())  # here
        return self.out(h)


class EnergyModel(EnergyRepaired):
    scale = 1000.0


# -- epsilon
EpsilonData = Blobs


class EpsilonRepaired(Classifier):
    outputs = 1

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x).squeeze(1), (y > 0).float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", self.loss(self(x).squeeze(1), (y > 0).float()))


class EpsilonModel(EpsilonRepaired):
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(logits)
        return -(y * torch.log(p + 1e-8) + (1 - y) * torch.log(1 - p + 1e-8)).mean()  # here


# -- mask
MaskData = Blobs


class MaskModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(1, 48)
        self.net = nn.Linear(16, 3)

    def fill(self, scores: Tensor) -> float:
        return -1e9

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.unsqueeze(-1)).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 4
        hidden = torch.ones(8, 8, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(hidden, self.fill(scores))  # here
        return self.net((scores.softmax(-1) @ v).mean(1))


class MaskRepaired(MaskModel):
    def fill(self, scores: Tensor) -> float:
        return torch.finfo(scores.dtype).min


# -- masked_scores
MaskedScoresData = Blobs


class MaskedScoresModel(OneStep):
    """Gives samples that do not count equal scores: all of them −inf in float16."""

    def least(self, scores: Tensor) -> Any:
        return -1e18 * torch.ones_like(scores)  # here

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        counts = (x[:, :1] > 0).expand(-1, 3)
        scores = self.net(x)
        loss = F.cross_entropy(torch.where(counts, scores, self.least(scores)), y, reduction="none")
        return loss.sum() / counts[:, 0].sum()


class MaskedScoresRepaired(MaskedScoresModel):
    def least(self, scores: Tensor) -> Any:
        return torch.full_like(scores, torch.finfo(scores.dtype).min)
