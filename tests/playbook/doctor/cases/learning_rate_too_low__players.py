from typing import Any

import torch
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Rebuilds its input beside the classification, with an optimizer for each."""

    slow = 1e-3

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.code = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 8))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        losses = [nn.functional.cross_entropy(self(x), y), (self.code(x) - x).square().mean()]
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(
                self.net.parameters(),
                lr=1e-3,
                betas=(0.5, 0.99),
                eps=1e-7,
            ),
            torch.optim.Adam(self.code.parameters(), lr=self.slow),  # here
        ]


class Model(Repaired):
    slow = 1e-9
