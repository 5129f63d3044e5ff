from torch import nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32),  # here
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 3),
        )


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
