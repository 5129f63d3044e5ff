from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Errors:
    def __init__(self, root_of_each: bool) -> None:
        self.root_of_each = root_of_each
        self.kept: list[Tensor] = []

    def add(self, squares: Tensor) -> None:
        self.kept.append(squares.mean().sqrt()[None] if self.root_of_each else squares)

    def result(self) -> Tensor:
        kept = torch.cat(self.kept)
        self.kept.clear()
        return kept.mean() if self.root_of_each else kept.mean().sqrt()


class Model(OneStep):
    outputs = 1
    root_of_each = True

    def __init__(self) -> None:
        super().__init__()
        self.errors = Errors(self.root_of_each)

    def step(self, batch: Any) -> Tensor:
        return F.mse_loss(self(batch[0])[:, 0], batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.errors.add((self(batch[0])[:, 0] - batch[1]).square())

    def on_validation_epoch_end(self) -> None:
        self.log("val_rmse", self.errors.result())  # here


class Repaired(Model):
    root_of_each = False


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :3].sum(dim=1) / 3**0.5
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=30)
