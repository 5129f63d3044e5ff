import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Has a layer of low rank, and one whose result two others take."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(8, 4, bias=False), nn.Linear(4, 32)
        self.mean, self.scale = nn.Linear(32, 32), nn.Linear(32, 32)
        self.net = nn.Sequential(nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.down(x))
        return self.net(self.mean(x) * torch.sigmoid(self.scale(x)))
