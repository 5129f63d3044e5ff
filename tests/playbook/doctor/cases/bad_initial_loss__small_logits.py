import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Cosines, which are meant to be scaled."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.normalize(self.net[:2](x), dim=-1)
        return F.linear(hidden, F.normalize(self.net[2].weight, dim=-1)) * 40


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        small = self.net(x) / 2
        return small * 60  # here
