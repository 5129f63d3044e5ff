"""A net among the arguments, of which save_hyperparameters keeps a copy."""

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        head = head or nn.Linear(32, self.outputs)
        self.save_hyperparameters(logger=False)
        self.net[2] = head
