from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Masked tokens, drawn anew for validation too; -100 where nothing is asked, padding is -1."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(41, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 40))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, real, labels = batch
        labels = labels.masked_fill(~real, -1)
        return F.cross_entropy(self(tokens).flatten(0, 1), labels.flatten(), ignore_index=-1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


def mask(rows: list[Any]) -> Any:
    tokens = torch.stack([row[0] for row in rows])
    hidden = torch.rand(tokens.shape) < 0.2
    hidden[:, 0] = True
    return tokens.masked_fill(hidden, 40), tokens >= 0, tokens.masked_fill(~hidden, -1)


class Data(Blobs):
    def setup(self, stage: str) -> None:
        tokens = torch.randint(0, 40, (300, 12), generator=torch.Generator().manual_seed(0)).cummax(dim=1).values
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=mask)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=mask)
