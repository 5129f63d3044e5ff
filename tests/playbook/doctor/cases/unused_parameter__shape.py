import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Takes the shape of what a layer makes, and not its values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.offset = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + self.shift(self.offset(x))  # here

    def shift(self, offset: Tensor) -> Tensor:
        return torch.zeros_like(offset)


class Repaired(Model):
    def shift(self, offset: Tensor) -> Tensor:
        return offset
