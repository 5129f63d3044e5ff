from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Makes both of two heads, of which an option chooses one."""

    def __init__(self, head: str = "small") -> None:
        super().__init__()
        self.head = head
        self.small = nn.Linear(32, 3)
        self.large = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))  # here
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        if self.head == "large":
            return self.large(self.net(x))
        return self.small(self.net(x))


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        del self.large
