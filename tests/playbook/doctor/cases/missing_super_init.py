from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        self.net = nn.Linear(8, 3)  # here


class Repaired(Classifier):
    pass
