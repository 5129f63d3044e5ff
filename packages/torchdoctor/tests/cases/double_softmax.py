from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(dim=-1)  # here


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x).log_softmax(dim=-1), y)


# -- attention
AttentionData = Blobs


class AttentionRepaired(Classifier):
    """Points at one of three places, and reads there."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(3, 4))
        self.value = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self(x)
        weights = scores.softmax(dim=-1)  # here
        read = self.value(weights @ self.places)
        return F.cross_entropy(self.pointed(scores, weights), y) + (read - 1).square().mean()

    def pointed(self, scores: Tensor, weights: Tensor) -> Tensor:
        return scores


class AttentionModel(AttentionRepaired):
    def pointed(self, scores: Tensor, weights: Tensor) -> Tensor:
        return weights


# -- layer
LayerData = Blobs


class LayerModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
        self.net = nn.Sequential(
            nn.Linear(8, 32),
            nn.ReLU(),
            nn.Linear(32, 3),
            nn.Softmax(dim=1),  # here
        )

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x).view(-1, 3), y)


class LayerRepaired(LayerModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = self.net[:3]


# -- mean
MeanData = Blobs


class MeanRepaired(Classifier):
    """Three heads that vote."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(32, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([head(self.net(x)) for head in self.heads]).mean(0)


class MeanModel(MeanRepaired):
    def forward(self, x: Tensor) -> Tensor:
        votes = [head(self.net(x)).softmax(dim=-1) for head in self.heads]  # here
        return torch.stack(votes).mean(0)
