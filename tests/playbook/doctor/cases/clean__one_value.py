from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Sums of features, one sample a step: (1, 1) and (1,) are one prediction and one target."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.spread: Any = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        prediction = self(batch[0])
        self.spread = (prediction.detach() - batch[1][:, None].double()).abs()  # no part of the loss
        return F.mse_loss(prediction, batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", F.mse_loss(self(batch[0]), batch[1]))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (
            TensorDataset(part[:][0], part[:][0].sum(1)) for part in (self.train_set, self.val_set)
        )

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set)
