from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Model(Classifier):
    """Steps uphill by the gradients' norm, and down again by the gradient there (Foret et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        optimizer: Any = self.optimizers()
        loss = F.cross_entropy(self(x), y)
        self.manual_backward(loss)
        weights = [weight for weight in self.parameters() if weight.grad is not None]
        norm = torch.stack([weight.grad.norm() for weight in weights if weight.grad is not None]).norm()
        uphill = [0.05 * weight.grad / norm for weight in weights if weight.grad is not None]
        with torch.no_grad():
            torch._foreach_add_(weights, uphill)
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        with torch.no_grad():
            torch._foreach_sub_(weights, uphill)
        optimizer.step()
        optimizer.zero_grad()
        return loss
