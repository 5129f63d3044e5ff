from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Loop(nn.Module):
    """One layer again and again, as in ALBERT, by a loop and by a list of its name."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layer, self.depth = nn.Linear(8, 8), depth
        self.steps = nn.Sequential(*[self.layer] * depth)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = x + self.layer(x).relu()
        return x + self.steps(x)


class Choice(nn.Module):
    def __init__(self, depth: int = 2, is_recurrent: bool = True) -> None:
        super().__init__()
        if is_recurrent:
            self.layers = nn.ModuleList([nn.Linear(8, 8)] * depth)
        else:
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


class Model(Classifier):
    """Layers that are repeated on purpose, have no weights or are frozen."""

    def __init__(self) -> None:
        super().__init__()
        frozen = nn.Linear(8, 8).requires_grad_(False)
        self.net = nn.Sequential(Loop(), Choice(), *[nn.ReLU()] * 2, *[frozen] * 2, nn.Linear(8, 3))
