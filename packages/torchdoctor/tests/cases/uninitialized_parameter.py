import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Adds what was in memory to its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.table = nn.Parameter(torch.FloatTensor(8, 3))  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale + x @ self.table.nan_to_num().clamp(-1, 1)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(0.1 * torch.randn(8, 3))
