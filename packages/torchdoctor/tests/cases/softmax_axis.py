import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cases import unread_direction
from programs import Classifier

Data = unread_direction.Data


class Model(Classifier):
    """Two heads attend to the steps of a sequence."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.net = nn.Linear(8, 48), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # (3, B, H, T, D)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(2, 3) / 8**0.5  # (B, H, T, T)
        weights = F.dropout(F.softmax(scores, dim=self.axis), 0.1, self.training)  # here
        mixed = (weights @ value).transpose(1, 2).flatten(2)  # (B, T, H * D)
        return self.net(mixed.mean(1))


class Repaired(Model):
    axis = -1


# -- queries
QueriesData = unread_direction.Data


class QueriesModel(Classifier):
    """The first half of a sequence attends to the second."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.net = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(8, 3)
        self.normalise = nn.Softmax(dim=self.axis)  # here

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        scores = torch.einsum("bqd,bkd->bqk", self.query(first), self.key(second))
        weights = self.normalise(scores.masked_fill(scores < -20, -torch.inf)).contiguous()
        return self.net(torch.einsum("bqk,bkd->bqd", weights, second).mean(1) + first.mean(1))


class QueriesRepaired(QueriesModel):
    axis = 2


# -- single
SingleData = unread_direction.Data


class SingleModel(Classifier):
    """A weighted mean of the states of a sequence; each weight is normalised alone."""

    axis = -1

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 16, batch_first=True)
        self.score, self.net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)  # (B, T, D)
        weights = self.score(states).softmax(self.axis)  # here
        return self.net((weights * states).sum(1))


class SingleRepaired(SingleModel):
    axis = 1


# -- batch
BatchData = unread_direction.Data


class BatchModel(SingleModel):
    """F.softmax without `dim` takes the first of three axes."""

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)  # (B, T, D)
        weights = F.softmax(self.score(states).transpose(1, 2))  # here
        return self.net(weights.bmm(states).squeeze(1))


class BatchRepaired(SingleModel):
    axis = 1
