from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=100.0, momentum=0.9)  # here


class Repaired(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


# -- adam
AdamData = Blobs


class AdamRepaired(Classifier):
    lr = 3e-3

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)  # here
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 20))
        return [optimizer], [{"scheduler": warm, "interval": "step"}]


class AdamModel(AdamRepaired):
    lr = 3.0


# -- thrown
class ThrownRepaired(OneStep):
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


class ThrownModel(ThrownRepaired):
    lr = 9.0


class ThrownData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for part in (self.train_set, self.val_set):
            x, _ = part.tensors  # type: ignore[attr-defined]
            part.tensors = (x, (x[:, 0] + x[:, 1] > 4).float())  # type: ignore[attr-defined]
