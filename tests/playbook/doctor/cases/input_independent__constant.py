import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    """Samples that differ in their targets alone."""

    def __init__(self) -> None:
        super().__init__()
        y = torch.arange(400) % 3
        self.train_set = TensorDataset(torch.ones(400, 8), y)  # here


class RepairedData(Blobs):
    pass
