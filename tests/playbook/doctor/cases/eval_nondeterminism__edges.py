from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


def thinned(adjacency: Tensor, rate: float) -> Tensor:
    """Without a share of the edges, the same in both directions, and with loops."""
    kept = torch.rand_like(adjacency).triu(1) > rate  # here
    kept = (kept & torch.ones_like(kept).triu(1)).to(adjacency.dtype)
    kept = kept + kept.transpose(1, 2)
    return adjacency * kept + torch.eye(adjacency.shape[-1])


class Model(OneStep):
    """Two kinds of graphs, told by the neighbours' features."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(64, 2)

    def edges(self, adjacency: Tensor) -> Tensor:
        return thinned(adjacency, 0.2)

    def forward(self, x: Any) -> Tensor:
        features, adjacency = x
        features = self.first(features).relu()
        around = self.edges(adjacency) @ features / 6
        return self.second(torch.cat([features, around], dim=-1).mean(dim=1))

    def step(self, batch: Any) -> Tensor:
        features, adjacency, kind = batch
        return F.cross_entropy(self((features, adjacency)), kind)


class Repaired(Model):
    def edges(self, adjacency: Tensor) -> Tensor:
        return super().edges(adjacency) if self.training else adjacency


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        kind = torch.randint(0, 2, (500,))
        team = (torch.arange(12) % 2).float() * 2 - 1
        same = (team[:, None] == team).float()
        share = torch.where(kind.view(-1, 1, 1) == 1, 0.1 + 0.5 * same, 0.6 - 0.5 * same)
        upper = (torch.rand(500, 12, 12) < share).float().triu(1)
        features = torch.randn(500, 12, 8)
        features[..., 0] = team + 0.3 * features[..., 0]
        parts = features, upper + upper.transpose(1, 2), kind
        self.train_set = TensorDataset(*(part[:400] for part in parts))
        self.val_set = TensorDataset(*(part[400:] for part in parts))
