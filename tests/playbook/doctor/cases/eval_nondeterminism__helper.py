import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


def drop_path(branch: Tensor, rate: float, training: bool = True) -> Tensor:
    """The branch without some of the samples, the others larger for it (Huang et al. 2016)."""
    if not training:
        return branch
    kept = torch.rand(len(branch), 1, device=branch.device) >= rate
    return branch * kept / (1 - rate)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 32)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def dropped(self, branch: Tensor) -> Tensor:
        return drop_path(branch, 0.2)  # here

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.net(x + self.dropped(self.second(x).relu()))


class Repaired(Model):
    def dropped(self, branch: Tensor) -> Tensor:
        return drop_path(branch, 0.2, self.training)
