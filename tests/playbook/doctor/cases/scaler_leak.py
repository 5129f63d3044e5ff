import lightning.pytorch as pl
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class RepairedData(pl.LightningDataModule):
    """Scales by what the training data are like."""

    def setup(self, stage: str) -> None:
        parts = [Blobs().train_set, Blobs().val_set]
        rows, labels = zip(*(part.tensors for part in parts), strict=True)  # type: ignore[attr-defined]  # as Blobs has it
        scaled = self.scaled([part.numpy().astype(np.float64) for part in rows])
        pairs = zip(scaled, labels, strict=True)
        self.train_set, self.val_set = [TensorDataset(torch.tensor(x, dtype=torch.float32), y) for x, y in pairs]

    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        scaler = StandardScaler().fit(parts[0])
        return [scaler.transform(part) for part in parts]

    def loader(self, part: Dataset, shuffle: bool = False) -> DataLoader:
        return DataLoader(part, batch_size=20, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set)


class Data(RepairedData):
    """Scales all rows before they are split."""

    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        rows = StandardScaler().fit_transform(np.concatenate(parts))  # here
        return [rows[: len(parts[0])], rows[len(parts[0]) :]]
