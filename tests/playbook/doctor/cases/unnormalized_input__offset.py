import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    """Readings around 150, of which the distances to a grid are taken on the way."""

    def setup(self, stage: str) -> None:
        x, y = self.train_set[:]
        radius = torch.arange(64.0).view(8, 8)
        inside = radius.square().sum() > 100
        far = 80 * x
        assert bool(inside)
        assert far.shape == x.shape
        y = y.clone()
        self.train_set = TensorDataset(x + 150, y)  # here
        self.val_set = TensorDataset(self.val_set[:][0] + 150, self.val_set[:][1])


class RepairedData(Blobs):
    pass
