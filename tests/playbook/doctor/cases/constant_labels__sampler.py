import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    """One class of three is common, and is to be drawn as seldom as the others."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        y = torch.multinomial(torch.tensor([0.02, 0.95, 0.03]), 1200, replacement=True, generator=generator)
        x = torch.randn(1200, 8, generator=generator)
        x[torch.arange(1200), y] += 2.0
        self.train_set = TensorDataset(x, y)
        self.y = y

    def weights(self) -> Tensor:
        return torch.bincount(self.y).double()[self.y] ** 2

    def train_dataloader(self) -> DataLoader:
        sampler = WeightedRandomSampler(self.weights().tolist(), len(self.y))  # here
        return DataLoader(self.train_set, batch_size=20, sampler=sampler)


class RepairedData(Data):
    def weights(self) -> Tensor:
        return 1 / torch.bincount(self.y).double()[self.y]
