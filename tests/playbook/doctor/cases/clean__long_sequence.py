import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Reads each sample 40 times, twice as often as there are samples."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 16)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 16, device=x.device)
        for _ in range(40):
            h = self.cell(x, h)
        return self.net(h)
