import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """A mixture of three normal densities, written by hand."""

    outputs = 9

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        weight, mean, spread = self(x).chunk(3, dim=1)
        spread = spread.clamp(-4, 3)
        each = -0.5 * ((y - mean) / spread.exp()).square() - spread - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(weight.log_softmax(dim=1) + each, dim=1).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3, maximize=True)  # here


class Repaired(Model):
    """The log-likelihood, which is to be large."""

    def step(self, batch: Any) -> Tensor:
        return -super().step(batch)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :1].sign() * (0.5 + torch.sigmoid(x[:, 1:2])) + 0.1 * torch.randn(500, 1)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
