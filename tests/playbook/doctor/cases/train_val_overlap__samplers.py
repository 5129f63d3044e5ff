import torch
from torch.utils.data import DataLoader, SubsetRandomSampler

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Data(Blobs):
    last = 160

    def __init__(self) -> None:
        super().__init__()
        self.order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tolist()

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=SubsetRandomSampler(self.order[80:]))

    def val_dataloader(self) -> DataLoader:
        part = SubsetRandomSampler(self.order[: self.last])
        return DataLoader(self.train_set, batch_size=20, sampler=part)  # here


class RepairedData(Data):
    last = 80
