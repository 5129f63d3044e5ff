import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Reads 8 numbers one by one with a cell that begins anew at each."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(1, 32)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(len(x), 32, device=x.device)
        for part in x.split(1, dim=1):
            h, c = self.next(part, h, c)
        return self.net(h)

    def next(self, part: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(part)  # here


class Repaired(Model):
    def next(self, part: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(part, (h, c))
