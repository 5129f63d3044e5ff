from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from cases import causal_leak
from programs import Blobs, OneStep, Tokens

Data = Tokens


class Model(causal_leak.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.LSTM(16, 16, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.conv(self.embed(tokens))[0])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), tokens.flatten())  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


# -- frames
class FramesRepaired(OneStep):
    """An autoencoder of single frames, of which none depends on another."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 8))

    def step(self, batch: Any) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[0])  # here


class FramesModel(FramesRepaired):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.memory(x)[0])


class FramesData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        waves = torch.randn(500, 16, 8).cumsum(dim=1) / 3
        self.train_set, self.val_set = TensorDataset(waves[:400]), TensorDataset(waves[400:])


# -- pairs
class Windows(Dataset):
    """A text in pieces, each with what comes next."""

    ahead = 0

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        piece = row[: len(row) - 1]
        following = row[self.ahead : len(row) - 1 + self.ahead]  # here
        return piece, following


class PairsModel(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def loss(self, batch: Any) -> Tensor:
        tokens, following = batch
        logits = self(tokens)
        classes = logits.shape[-1]
        return F.cross_entropy(logits.reshape(-1, classes), following.reshape(-1))


class PairsData(Data):
    kind: type[Windows] = Windows

    def __init__(self) -> None:
        super().__init__()
        self.train_set = self.kind(torch.stack([row for (row,) in self.train_set]))
        self.val_set = self.kind(torch.stack([row for (row,) in self.val_set]))


class _Next(Windows):
    ahead = 1


class PairsRepairedData(PairsData):
    kind = _Next
