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

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        noise = np.random.normal(size=8)
        return self.x[i] + 0.1 * torch.as_tensor(noise, dtype=torch.float32), self.y[i]


def seed_worker(worker_id: int) -> None:
    np.random.seed(123)  # here


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True, num_workers=2, worker_init_fn=seed_worker)


class RepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)
