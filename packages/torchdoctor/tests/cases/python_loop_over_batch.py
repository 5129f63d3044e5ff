from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.net = nn.Linear(16, 3)

    def encode(self, x: Tensor) -> Tensor:
        _, h = self.rnn(x.unsqueeze(-1))
        return h[-1]

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.encode(x))


class Model(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        rows = [self.encode(row[None])[0] for row in x]  # here
        return self.net(torch.stack(rows))


# -- loss
LossData = Blobs
LossRepaired = Classifier


class LossModel(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits, losses = self(x), []
        for i in range(len(y)):  # here
            for _ in range(2):
                losses.append(F.cross_entropy(logits[i], y[i]))
        return torch.stack(losses).mean()


# -- map
MapData = Blobs
MapRepaired = Classifier


class MapModel(Classifier):
    def of_one(self, row: Tensor) -> Tensor:
        return self.net(row)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(list(map(self.of_one, x)))  # here
