"""Steps that take twenty samples and no other number, beside as many that the module keeps."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("noise", 0.1 * torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        plain, noisy = self(torch.cat([x, x + self.noise])).chunk(2)  # type: ignore[operator]  # a buffer
        return F.cross_entropy(plain, y) + 0.1 * F.mse_loss(noisy, plain)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))
