from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Learns from its own sure answers as well (Sohn et al. 2020), which are all one class before any training."""

    def __init__(self) -> None:
        super().__init__()
        head = self.net[2]
        assert isinstance(head, nn.Linear)
        nn.init.normal_(head.weight, std=0.001)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        surest, answer = self(x).detach().softmax(1).max(1)
        noisy = self(x + 0.1 * torch.randn_like(x))
        return F.cross_entropy(self(x), y) + (F.cross_entropy(noisy, answer, reduction="none") * (surest > 0.9)).mean()


class Data(Blobs):
    pass
