from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """Tells a rare class: the last bias alone lowers the loss."""

    outputs = 1
    lr = 1e-2

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x)[:, 0], y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)  # here


class Model(Repaired):
    lr = 9.0


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for part in (self.train_set, self.val_set):
            x, _ = part.tensors  # type: ignore[attr-defined]
            part.tensors = (x, (x[:, 0] + x[:, 1] > 4).float())  # type: ignore[attr-defined]
