from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32)


class Repaired(Classifier):
    """An RNN that gets the state it begins with."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 3)

    def forward(self, x: Tensor, number: int | None = None) -> Tensor:
        state = torch.zeros(1, number or len(x), 32, device=x.device)
        return self.head(self.rnn(x.unsqueeze(-1), state)[1][-1])  # here


class Model(Repaired):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x, 32), y))
