import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset, random_split

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class RepairedData(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.samples = Blobs().train_set

    def split(self) -> list[Dataset]:
        return random_split(self.samples, [280, 60, 60], torch.Generator().manual_seed(0))

    def setup(self, stage: str) -> None:
        self.train_set, self.val_set, self.test_set = self.split()

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)


class Data(RepairedData):
    def split(self) -> list[Dataset]:
        return random_split(self.samples, [280, 60, 60])  # here
