from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Trains a head on a network that comes trained, and is not frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
        generator = torch.Generator().manual_seed(0)
        self.net(torch.randn(256, 8, generator=generator))  # in place of a checkpoint: its norm has statistics
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.head.parameters(), lr=1e-3)  # here


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.net.requires_grad_(False)
