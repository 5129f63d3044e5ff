from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Moves points until each has one of the others near it: every point with every other, on purpose (Chamfer)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        apart = (self(x.unsqueeze(-1)) - y.unsqueeze(1)).square()  # (B, N, 1) and (B, 1, N)
        return apart.amin(dim=1).mean() + apart.amin(dim=2).mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 12)
        y = x[:, torch.randperm(12)].sinh() / 2
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
