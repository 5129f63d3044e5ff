"""A teacher that follows slowly while the rate still warms up: its norms' weights stay at one but for rounding."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
        self.teacher = copy.deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        with torch.no_grad():
            taught = self.teacher(x).softmax(1)
        scores = self.net(x)
        for slow, fast in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            slow.data.copy_(fast.data * (1 - 0.999) + slow.data * 0.999)
        return F.cross_entropy(scores, y) + F.kl_div(scores.log_softmax(1), taught, reduction="batchmean")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20_000))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
