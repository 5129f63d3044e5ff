import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Integrates a differential equation."""

    step = 0.02

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift = nn.Linear(8, 64)
        self.inner, self.outer = nn.Linear(64, 96), nn.Linear(96, 64)
        for layer in (self.inner, self.outer):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="tanh")
        self.net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        for _ in range(50):
            h = h + self.step * (self.outer(torch.tanh(self.inner(h))) - h)  # here
        return self.net(h)


class Model(Repaired):
    step = 1.0
