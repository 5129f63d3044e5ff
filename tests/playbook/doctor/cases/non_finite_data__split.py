import torch
from torch.utils.data import TensorDataset, random_split

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    """Some samples were never measured."""

    def setup(self, stage: str) -> None:
        x, y = (torch.cat(parts) for parts in zip(self.train_set[:], self.val_set[:], strict=True))
        seen = torch.arange(len(x)) % 41 > 0
        self.train_set, self.val_set = random_split(TensorDataset(x / seen[:, None], y), [0.8, 0.2])  # here


class RepairedData(Blobs):
    pass
