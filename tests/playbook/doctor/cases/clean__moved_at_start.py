"""Constants that the training sends to the device as it begins, after the model."""

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.linspace(0.5, 1.5, 8)

    def on_fit_start(self) -> None:
        self.scale = self.scale.to(self.device)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scale)
