from typing import Any

from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.net.eval()  # here


class Repaired(Classifier):
    """Frozen norms, on purpose: `train` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.norm(x))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self
