from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Noisy(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors
        self.generator = np.random.default_rng(7)  # here

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        noise = self.generator.normal(size=8)
        return self.x[i] + 0.1 * torch.as_tensor(noise, dtype=torch.float32), self.y[i]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class RepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True)
