import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        logits = F.normalize(self.net(x))  # here
        return logits if self.scale == 1 else self.scale * logits


class Repaired(Model):
    scale = 16.0
