from torch import Tensor

from tests.playbook.doctor.cases.unnormalized_input__before_norm import Data as Floats
from tests.playbook.doctor.cases.unnormalized_input__before_norm import Model as OfFloats


class Model(OfFloats):
    """Takes bytes as they are, before a norm."""

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.float())  # here


class Data(Floats):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255).byte()


class RepairedData(Floats):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1
