import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Reads the features one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: nn.Module = nn.Identity()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.scale(x[..., None]))  # here
        return self.net(torch.tanh(states[:, -1]))


class Model(Repaired):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.LayerNorm(1)
