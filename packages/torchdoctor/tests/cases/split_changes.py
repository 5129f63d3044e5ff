import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, random_split

from programs import Blobs, Classifier

Model = Classifier


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


# -- predict
PredictModel = Classifier


class PredictData(Blobs):
    """Draws its split for `fit`, and once more for the samples that are left to predict."""

    generator: torch.Generator | None = None

    def setup(self, stage: str) -> None:
        whole = ConcatDataset([self.train_set, self.val_set])
        train, val, rest = random_split(whole, [300, 100, 100], self.generator)  # here
        if stage == "fit":
            self.train, self.val = train, val
        elif stage == "predict":
            self.rest = rest

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)

    def predict_dataloader(self) -> DataLoader:
        return DataLoader(self.rest, batch_size=20)


class PredictRepairedData(PredictData):
    def setup(self, stage: str) -> None:
        self.generator = torch.Generator().manual_seed(0)
        super().setup(stage)


# -- rank
RankModel = Classifier


class RankRepairedData(pl.LightningDataModule):
    def draw(self) -> np.ndarray:
        return np.random.default_rng(0).permutation(400)

    def setup(self, stage: str) -> None:
        samples, order = Blobs().train_set, self.draw()
        self.train_set, self.val_set = Subset(samples, order[:320].tolist()), Subset(samples, order[320:].tolist())

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class RankData(RankRepairedData):
    def draw(self) -> np.ndarray:
        return np.random.default_rng().permutation(400)  # here


# -- tests_all
TestsAllModel = Classifier


class TestsAllRepairedData(Blobs):
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


class TestsAllData(TestsAllRepairedData):
    def tested(self, whole: Dataset, rest: Dataset) -> Dataset:
        return whole
