from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        pairs = x.reshape(2, -1, 4)  # here
        x = pairs.transpose(0, 1).flatten(1)
        return self.net(x)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.reshape(-1, 2, 4).flatten(1))
