import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Net(nn.Module):
    def __init__(self, is_spare: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        if is_spare:
            self.spare = nn.Linear(32, 3)  # here

    def forward(self, x: Any) -> Any:
        return self.body(x)


class Model(Classifier):
    """Only the moving average reads a layer; the step optimizes by itself."""

    is_spare = True

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = Net(self.is_spare)  # type: ignore[assignment]  # in place of the perceptron
        self.teacher = copy.deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        with torch.no_grad():
            taught = self.teacher(x).softmax(1)
        scores = self(x)
        loss = F.cross_entropy(scores, y) + F.kl_div(scores.log_softmax(1), taught, reduction="batchmean")
        self.manual_backward(loss)
        optimizer.step()
        for slow, fast in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            slow.data.copy_(0.9 * slow.data + 0.1 * fast.data)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


class Repaired(Model):
    is_spare = False
