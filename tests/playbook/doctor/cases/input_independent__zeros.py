import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    """Fills in what is missing."""

    def filled(self, x: Tensor) -> Tensor:
        return torch.where(x.isfinite(), x, torch.zeros_like(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.filled(x))


class Model(Repaired):
    def filled(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)  # here
