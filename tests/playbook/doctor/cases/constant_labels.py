import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(400, 8, generator=torch.Generator().manual_seed(1))
        y = x[:, 0].sigmoid().mul(3).div(3, rounding_mode="floor").long()  # here
        self.train_set = TensorDataset(x, y)


class RepairedData(Blobs):
    pass
