from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Block(nn.Module):
    """Updates values, and the state that the next block's values are updated by."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.state = nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.value(x.new_ones(len(x), 16) * state.repeat(1, 2)).tanh()
        return x, state + self.state(x)  # here


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.net = nn.Sequential(nn.Linear(8, 3))

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x
        for block in self.blocks:
            x, state = block(x, state)
        return x, state

    def forward(self, x: Tensor) -> Tensor:
        x, state = self.both(x)
        return self.net(x + state)


class Model(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.both(x)[0])
