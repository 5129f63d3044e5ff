from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + nn.Linear(8, 8)(x))  # here


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.mix(x))
