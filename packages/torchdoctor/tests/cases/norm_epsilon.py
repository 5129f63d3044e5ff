from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Its norm gets as an epsilon what was meant as the momentum."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False),
            self.norm(),
            nn.ReLU(),
            nn.Linear(32, 3),
        )

    def norm(self) -> nn.Module:
        return nn.BatchNorm1d(32, 0.8)  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x / 2)


class Repaired(Model):
    def norm(self) -> nn.Module:
        return nn.BatchNorm1d(32, momentum=0.8)
