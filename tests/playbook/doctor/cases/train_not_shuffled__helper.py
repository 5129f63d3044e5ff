from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        logits = self(batch["x"]).log_softmax(dim=1)
        return -(logits * F.one_hot(batch["y"], 3)).sum(dim=1).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Folder(Dataset):
    def __init__(self, per_class: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.files = [(torch.randn(8, generator=generator) + k, k) for k in range(3) for _ in range(per_class)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        x, y = self.files[i]
        return {"x": x, "y": y}


class Loaders(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Folder(100, 0), Folder(20, 1)

    def loader(self, dataset: Dataset, mixed: bool) -> DataLoader:
        return DataLoader(
            dataset,
            batch_size=16,
            num_workers=0,
            pin_memory=False,
            shuffle=mixed,
        )

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set, mixed=False)


class Data(Loaders):
    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, mixed=False)  # here


class RepairedData(Loaders):
    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, mixed=True)
