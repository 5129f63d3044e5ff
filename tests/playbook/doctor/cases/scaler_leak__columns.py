import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]

MEASURED = 6  # columns; the others are yes or no


class RepairedData(Blobs):
    """Scales what is measured by the training data, and leaves what is yes or no."""

    def setup(self, stage: str) -> None:
        parts = [part.tensors for part in (self.train_set, self.val_set)]
        tables = [x.numpy().astype(np.float64) for x, _ in parts]
        for table in tables:
            table[:, MEASURED:] = table[:, MEASURED:] > 0
        self.scale(*tables)
        pairs = zip(tables, parts, strict=True)
        self.train_set, self.val_set = [TensorDataset(torch.tensor(x).float(), y) for x, (_, y) in pairs]

    def scale(self, train: np.ndarray, val: np.ndarray) -> None:
        scaler = StandardScaler().fit(train[:, :MEASURED])
        for table in (train, val):
            table[:, :MEASURED] = scaler.transform(table[:, :MEASURED])


class Data(RepairedData):
    """Scales by all rows."""

    def scale(self, train: np.ndarray, val: np.ndarray) -> None:
        scaler = StandardScaler().fit(np.concatenate([train, val])[:, :MEASURED])  # here
        for table in (train, val):
            table[:, :MEASURED] = scaler.transform(table[:, :MEASURED])
