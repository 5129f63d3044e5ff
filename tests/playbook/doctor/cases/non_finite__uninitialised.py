import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """A scale as memory may be that nobody initialised."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), 1e30))  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x * self.scale) ** 2)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        nn.init.ones_(self.scale)
