import lightning.pytorch as pl
import numpy as np
from torch.utils.data import DataLoader, Subset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class RepairedData(pl.LightningDataModule):
    def draw(self) -> np.ndarray:
        return np.random.default_rng(0).permutation(400)

    def setup(self, stage: str) -> None:
        samples, order = Blobs().train_set, self.draw()
        self.train_set, self.val_set = Subset(samples, order[:320].tolist()), Subset(samples, order[320:].tolist())

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class Data(RepairedData):
    def draw(self) -> np.ndarray:
        return np.random.default_rng().permutation(400)  # here
