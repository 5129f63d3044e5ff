"""Clips the gradient of each part of a batch, adds them up and steps along their mean (Abadi et al. 2016)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        optimizer: Any = self.optimizers()
        weights, losses = list(self.parameters()), []
        sums = [torch.zeros_like(weight) for weight in weights]
        for inputs, target in zip(x.split(5), y.split(5), strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(self(inputs), target)
            self.manual_backward(loss)
            losses.append(loss.detach())
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            torch._foreach_add_(sums, [weight.grad for weight in weights])
        for weight, total in zip(weights, sums, strict=True):
            weight.grad = total / len(losses)
        optimizer.step()
        return torch.stack(losses).mean()
