from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Contrastive: validation needs two random views too."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (a, b), _ = batch
        similar = F.normalize(self(a), dim=1) @ F.normalize(self(b), dim=1).T
        return F.cross_entropy(similar / 0.5, torch.arange(len(a), device=a.device))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Views(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return tuple(self.x[i] + 0.2 * torch.randn(8) for _ in range(2)), self.y[i]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Views(self.train_set), Views(self.val_set)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, num_workers=2)
