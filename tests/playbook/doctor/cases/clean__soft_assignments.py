"""Softmax over clusters, slots and capsules, whose results are summed over the steps of a sequence."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.unread_direction import Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Clusters(nn.Module):
    """Sums what lies beside each of K centres (NetVLAD, Arandjelović et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.assign, self.centres = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.assign(x).softmax(2)  # (B, T, K)
        beside = x[:, :, None] - self.centres  # (B, T, K, D)
        return F.normalize((weights[..., None] * beside).sum(1), dim=2).mean(1)


class Slots(nn.Module):
    """Slots compete for the steps, and take the mean of what they get (Locatello et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.query, self.key = nn.Parameter(torch.randn(4, 8)), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        slots = self.slots.expand(len(x), 4, 8)
        for _ in range(2):
            weights = (self.query(slots) @ self.key(x).transpose(1, 2)).softmax(1)  # (B, K, T)
            slots = slots + weights @ x / (weights.sum(2, keepdim=True) + 1e-6)
        return slots.mean(1)


class Capsules(nn.Module):
    """Each step sends its vote to the capsules that agree with it (Sabour et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.votes = nn.Linear(8, 4 * 8)

    def forward(self, x: Tensor) -> Tensor:
        votes = self.votes(x).unflatten(2, (4, 8))  # (B, T, K, D)
        scores = torch.zeros(votes.shape[:3], device=x.device)
        sums = (scores.softmax(2)[..., None] * votes).sum(1, keepdim=True).tanh()
        scores = scores + (votes * sums).sum(3)
        return (scores.softmax(2)[..., None] * votes).sum(1).mean(1)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.parts, self.net = nn.ModuleList([Clusters(), Slots(), Capsules()]), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.cat([part(x) for part in self.parts], dim=1))
