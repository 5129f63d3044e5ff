import torch
from torch.utils.data import DataLoader, SubsetRandomSampler

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    """One data set, of which two samplers take parts."""

    def __init__(self) -> None:
        super().__init__()
        order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tolist()
        self.train_sampler, self.val_sampler = SubsetRandomSampler(order[80:]), SubsetRandomSampler(order[:80])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.train_sampler)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.val_sampler)
