from torch import Tensor, nn
from torchvision.ops import stochastic_depth

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Block(nn.Module):
    def __init__(self, hands_on: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.hands_on = hands_on

    def forward(self, x: Tensor) -> Tensor:
        training = self.training if self.hands_on else True
        return x + stochastic_depth(self.inner(x).relu(), 0.2, "row", training)  # here


class Repaired(Classifier):
    hands_on = True

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), Block(self.hands_on), Block(self.hands_on), nn.Linear(32, 3))


class Model(Repaired):
    hands_on = False
