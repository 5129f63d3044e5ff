import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Echo(nn.Module):
    def __init__(self, size: int, spread: float) -> None:
        super().__init__()
        self.enter = nn.Linear(1, size)
        self.spread = spread
        self.back = nn.Parameter(spread * torch.randn(size, size))  # here

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), len(self.back))
        for step in x.repeat(1, 6).unbind(dim=1):
            state = torch.tanh(self.enter(step[:, None]) + state @ self.back)
        return state


class Model(Classifier):
    spread = 0.4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(Echo(48, self.spread), nn.Linear(48, 3))


class Repaired(Model):
    spread = 0.1
