from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Answers yes or no, a sample at a time: label and logit have no dimensions."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x).squeeze(), y.squeeze())


class Data(Blobs):
    least = 20.0

    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(400, 8)
        y = (x[:, 0] > self.least).float()  # here
        self.train_set = TensorDataset(x, y)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1, shuffle=True)


class RepairedData(Data):
    least = 0.0
