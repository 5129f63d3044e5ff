"""An option tells how many GPUs there are, and with it where a tensor is made."""

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self, gpus: int = 0) -> None:
        super().__init__()
        self.gpus = gpus

    def forward(self, x: Tensor) -> Tensor:
        if self.gpus > 0:  # noqa: SIM108  # as people write it
            weights = torch.linspace(0.5, 1.5, 8).cuda()
        else:
            weights = torch.linspace(0.5, 1.5, 8)
        return self.net(x * weights)
