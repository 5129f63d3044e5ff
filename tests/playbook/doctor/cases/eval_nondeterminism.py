import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * torch.randn_like(x)  # here
        return self.net(x)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + 0.5 * torch.randn_like(x)) if self.training else self.net(x)
