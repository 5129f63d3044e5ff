from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Of a long sequence the end counts: what is forgotten is not lost between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(1, 16)
        self.cell = nn.GRUCell(16, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 16)
        for part in x.flip(1).repeat(1, 3).unbind(dim=1):
            state = self.cell(self.enter(part[:, None]), state)
        return self.net(state)
