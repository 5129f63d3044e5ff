import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """One sample at a time, by torch.func."""

    gain: Tensor
    dtype_of_gain = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gain", torch.ones(3, dtype=self.dtype_of_gain))

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(self.net)(x) * self.gain  # here


class Model(Repaired):
    dtype_of_gain = torch.float64
