from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.net(x).sigmoid()
        out = gate * 2.0
        gate[:, 0] = 0.0  # here
        return out * gate


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.net(x).sigmoid()
        return gate * 2.0 * gate
