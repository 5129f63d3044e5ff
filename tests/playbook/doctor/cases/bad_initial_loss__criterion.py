from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """The loss is a module, which is given the labels."""

    lr = 1e-4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))  # here
        self.criterion = nn.MSELoss()

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return self.criterion(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Repaired(Model):
    lr = 2e-2  # a few steps get there


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
        y = 3 + 0.2 * x[:, :4].sum(dim=1, keepdim=True)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
