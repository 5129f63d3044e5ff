from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Learns to say the same of inputs that are moved against it."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        with torch.enable_grad():
            moved = (x + 1e-3 * torch.randn_like(x)).requires_grad_()
            (gradient,) = torch.autograd.grad(self.distance(x, moved), moved)
        moved = x + 0.05 * gradient.sign()
        loss = F.cross_entropy(self(x), y) + self.distance(x, moved)
        self.log("train_loss", loss)
        return loss

    def distance(self, x: Tensor, moved: Tensor) -> Tensor:
        return F.kl_div(self(moved).log_softmax(1), self(x).softmax(1), reduction="batchmean")
