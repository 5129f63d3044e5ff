import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """A recurrent network over features, of which each is to be a step."""

    features = 8

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(self.features, 16, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x.unsqueeze(1))  # here
        return self.out(states[:, -1])


class Repaired(Model):
    features = 1

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x.unsqueeze(2))
        return self.out(states[:, -1])


# -- cells
CellsData = Blobs


class CellsModel(Classifier):
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


class CellsRepaired(CellsModel):
    def next(self, part: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(part, (h, c))
