from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Normalises the results of two layers by the same running mean and variance."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(size, 32, bias=False) for size in (8, 32))
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        x = self.after(self.second(x)).relu()
        return self.head(x)

    def after(self, x: Tensor) -> Tensor:
        return self.norm(x)  # here


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.BatchNorm1d(32)

    def after(self, x: Tensor) -> Tensor:
        return self.other(x)
