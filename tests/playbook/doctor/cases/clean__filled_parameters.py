import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Makes parameters of their sizes alone, and fills each in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.Tensor(8, 3))
        self.shift = nn.Parameter(torch.empty(3))
        self.scale = nn.Parameter(torch.FloatTensor([1.0, 1.0, 1.0]))
        self.first, self.second = (nn.Parameter(torch.empty(1)) for _ in range(2))
        self.third = nn.Parameter(torch.empty(1).fill_(1.0))
        self.reset()

    def reset(self) -> None:
        self.table.data.normal_(0, 0.1)
        with torch.no_grad():
            self.shift[:] = 0
        for weight in (self.first, self.second):
            nn.init.ones_(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale * self.first * self.second * self.third + x @ self.table + self.shift
