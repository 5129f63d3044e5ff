import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    start = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 64)
        self.net = nn.Linear(64, 3)
        nn.init.constant_(self.hidden.bias, self.start)  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(F.relu(self.hidden(x)))


class Model(Repaired):
    start = -4.0


# -- offset
OffsetData = Blobs


class OffsetRepaired(Classifier):
    threshold = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32))
        self.net = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        return self.net((h - self.threshold).clamp(min=0))  # here


class OffsetModel(OffsetRepaired):
    threshold = 6.0


# -- prior
PriorData = Blobs


class PriorModel(Classifier):
    """The bias of rare classes is meant for the last layer."""

    prior = -4.0

    def __init__(self) -> None:
        super().__init__()
        self.apply(self.begin)
        nn.init.zeros_(self.net[2].bias)

    def begin(self, part: nn.Module) -> None:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.1)
            nn.init.constant_(part.bias, self.prior)  # here


class PriorRepaired(PriorModel):
    prior = 0.0
