import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class RepairedData(Blobs):
    """The same split for every stage; what is left is tested."""

    def setup(self, stage: str) -> None:
        whole = ConcatDataset([self.train_set, self.val_set])
        train, val, test = random_split(whole, [300, 100, 100], torch.Generator().manual_seed(1))
        if stage == "fit":
            self.train, self.val = train, val
        if stage == "test":
            self.test = self.tested(whole, test)

    def tested(self, whole: Dataset, rest: Dataset) -> Dataset:
        return rest

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)

    def test_dataloader(self) -> DataLoader:  # here
        return DataLoader(self.test, batch_size=20)


class Data(RepairedData):
    def tested(self, whole: Dataset, rest: Dataset) -> Dataset:
        return whole
