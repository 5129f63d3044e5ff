from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Prices as they are, which three layers that grow together reach within some thousand steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def step(self, batch: Any) -> Tensor:
        features, price = batch
        return nn.functional.mse_loss(self.net(features), price)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def prices(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(number, 6, generator=generator)
    price = 150 + features @ torch.tensor([30.0, -20, 10, 5, 0, 40]) + 20 * torch.randn(number, generator=generator)
    return TensorDataset(features, 1000 * price[:, None])


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = prices(400, 0), prices(100, 1)
