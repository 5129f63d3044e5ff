import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(400, 8, generator=generator)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long() + 1  # here
        self.train_set = TensorDataset(x, y)


class RepairedData(Blobs):
    pass
