from torch import nn

from tests.doctor.programs import Blobs as Data
from tests.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        self.net = nn.Linear(8, 3)  # here


class Repaired(Classifier):
    pass
