from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Repaired(Classifier):
    """Reads 80 steps, and decides by the last state."""

    gain = 0.9

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(2, 96, batch_first=True)
        self.net = nn.Sequential(nn.Linear(96, 3))
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=self.gain)  # here

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.rnn(x)
        return self.net(state[-1])


class Model(Repaired):
    gain = 2.0


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.waves(300, 0), self.waves(60, 1)

    def waves(self, number: int, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 3, (number,), generator=generator)
        t = torch.linspace(0, 6, 80) * (1 + y[:, None]) + 6 * torch.rand(number, 1, generator=generator)
        x = torch.stack([t.sin(), t.cos()], dim=2)
        return TensorDataset(x + 0.3 * torch.randn(x.shape, generator=generator), y)
