from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs

__all__ = ["Data"]


class Model(pl.LightningModule):
    """Drops at the rate that a step asks for, which is 0 where it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor, rate: float = 0.0) -> Tensor:
        return self.second(F.dropout(self.first(x).relu(), rate))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x, 0.3), y)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(Blobs):
    val_dataloader = None  # type: ignore[assignment]  # nothing is validated
