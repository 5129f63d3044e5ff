import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)] * 3)  # here

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.net(x)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])


# -- sequential
SequentialData = Blobs


class SequentialModel(Classifier):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 16),
            *[nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()] * depth,  # here
            nn.Linear(16, 3),
        )


class SequentialRepaired(Classifier):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())]
        self.net = nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 3))
