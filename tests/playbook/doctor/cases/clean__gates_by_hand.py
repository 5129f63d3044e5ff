from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """An LSTM of linear layers over 60 steps, told by the last: its gates are made to forget the first."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(1 + 16, 4 * 16)
        self.head = nn.Linear(16, 1)
        self.net = nn.Sequential()
        nn.init.normal_(self.gates.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        state = memory = x.new_zeros(len(x), 16)
        for step in x.unbind(1):
            i, f, o, g = self.gates(torch.cat([step[:, None], state], 1)).chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
        return self.head(state)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.training_step(batch, batch_idx))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        phase = 6.3 * torch.rand(300, 1, generator=torch.Generator().manual_seed(0))
        x = torch.sin(phase + 0.3 * torch.arange(61))
        self.train_set = TensorDataset(x[:240, :60], x[:240, 60:])
        self.val_set = TensorDataset(x[240:, :60], x[240:, 60:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
