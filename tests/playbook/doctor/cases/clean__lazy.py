"""A layer that takes the size of its weights from the first batch."""

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 3))
