import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def shapes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return (rng.normal(size=(n, 8)) + 2 * y[:, None]).astype(np.float32), y


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x, y = shapes(500, 0)
        rng = np.random.default_rng(3)
        rng.shuffle(x)  # here
        self.train_set = TensorDataset(torch.tensor(x[:400]), torch.tensor(y[:400]))
        self.val_set = TensorDataset(torch.tensor(x[400:]), torch.tensor(y[400:]))


class RepairedData(Blobs):
    def setup(self, stage: str) -> None:
        x, y = shapes(500, 0)
        self.train_set = TensorDataset(torch.tensor(x[:400]), torch.tensor(y[:400]))
        self.val_set = TensorDataset(torch.tensor(x[400:]), torch.tensor(y[400:]))
