from torch import nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Forgets the activation between its first two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32),
            nn.Linear(32, 16),  # here
            nn.ReLU(),
            nn.Linear(16, 3),
        )


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3))
