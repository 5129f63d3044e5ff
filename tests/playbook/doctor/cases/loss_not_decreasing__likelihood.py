from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """A mixture of four normal distributions of two numbers (Bishop 1994)."""

    outputs = 20

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        out = self(x)
        mean, scale = out[:, 4:12].view(-1, 4, 2), out[:, 12:].exp().view(-1, 4, 2)
        parts = Independent(Normal(mean, scale), 1)
        return -MixtureSameFamily(Categorical(logits=out[:, :4]), parts).log_prob(y).mean()


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return -self.step(batch)  # here


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :2] * x[:, 2:4].sign()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
