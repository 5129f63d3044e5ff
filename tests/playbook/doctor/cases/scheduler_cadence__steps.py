from dataclasses import dataclass
from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


@dataclass
class Plan:
    """Of a training, whose length its Trainer does not know yet."""

    epochs: int = 20
    batches: int = 20

    @property
    def total_steps(self) -> int:
        return self.epochs * self.batches

    def cosine(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.total_steps)  # here


class Model(Classifier):
    interval = "epoch"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": Plan().cosine(optimizer), "interval": self.interval}]


class Repaired(Model):
    interval = "step"
