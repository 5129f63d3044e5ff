from torch import Tensor, nn

from tests.playbook.doctor.cases import unnormalized_input__before_norm as before_norm
from tests.playbook.doctor.programs import Classifier


class Model(Classifier):
    """The norm comes after the ReLU, and the biases are left as they are: advice as well."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 3))


class Data(before_norm.Data):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255)  # here


class RepairedData(Data):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1
