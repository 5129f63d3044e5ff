from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    std = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, 64, batch_first=True)
        self.net = nn.Linear(64, 3)
        nn.init.normal_(self.rnn.weight_hh_l0, std=self.std)  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        out, _ = self.rnn(x[:, None].expand(-1, 30, -1))
        return F.cross_entropy(self(out[:, -1]), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        out, _ = self.rnn(x[:, None].expand(-1, 30, -1))
        self.log("val_loss", F.cross_entropy(self(out[:, -1]), y))


class Model(Repaired):
    std = 1.0


# -- last_state
class LastStateRepaired(Classifier):
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


class LastStateModel(LastStateRepaired):
    gain = 2.0


class LastStateData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.waves(300, 0), self.waves(60, 1)

    def waves(self, number: int, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 3, (number,), generator=generator)
        t = torch.linspace(0, 6, 80) * (1 + y[:, None]) + 6 * torch.rand(number, 1, generator=generator)
        x = torch.stack([t.sin(), t.cos()], dim=2)
        return TensorDataset(x + 0.3 * torch.randn(x.shape, generator=generator), y)


# -- loop
LoopData = Blobs


class LoopRepaired(Classifier):
    """Integrates a differential equation."""

    step = 0.02

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift = nn.Linear(8, 64)
        self.inner, self.outer = nn.Linear(64, 96), nn.Linear(96, 64)
        for layer in (self.inner, self.outer):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="tanh")
        self.net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        for _ in range(50):
            h = h + self.step * (self.outer(torch.tanh(self.inner(h))) - h)  # here
        return self.net(h)


class LoopModel(LoopRepaired):
    step = 1.0


# -- parameter
ParameterData = Blobs


class Echo(nn.Module):
    def __init__(self, size: int, spread: float) -> None:
        super().__init__()
        self.enter = nn.Linear(1, size)
        self.spread = spread
        self.back = nn.Parameter(spread * torch.randn(size, size))  # here

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), len(self.back))
        for step in x.repeat(1, 6).unbind(dim=1):
            state = torch.tanh(self.enter(step[:, None]) + state @ self.back)
        return state


class ParameterModel(Classifier):
    spread = 0.4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(Echo(48, self.spread), nn.Linear(48, 3))


class ParameterRepaired(ParameterModel):
    spread = 0.1
