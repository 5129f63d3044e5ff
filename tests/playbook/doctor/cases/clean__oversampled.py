import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    """Few possible rows: equal samples on both sides by chance; and a class that is repeated in training."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 3, (600, 8), generator=generator).float() - 1
        y = (x[:, :3].sum(dim=1) > 0).long() + (x[:, 3] > 0).long()
        rare = (y == 2).nonzero()[:, 0]
        rare = rare[rare < 480].repeat(4)
        self.train_set = TensorDataset(torch.cat([x[:480], x[rare]]), torch.cat([y[:480], y[rare]]))
        self.val_set = TensorDataset(x[480:], y[480:])
