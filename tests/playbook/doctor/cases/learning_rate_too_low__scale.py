from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Prices in thousands, from features of size one."""

    lr = 1e-4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 1)

    def step(self, batch: Any) -> Tensor:
        features, price = batch
        return F.mse_loss(self.net(features), price)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)  # here


class Repaired(Model):
    lr = 0.3


def prices(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(number, 6, generator=generator)
    price = 150 + features @ torch.tensor([30.0, -20, 10, 5, 0, 40]) + 20 * torch.randn(number, generator=generator)
    return TensorDataset(features, price[:, None])


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = prices(400, 0), prices(100, 1)
