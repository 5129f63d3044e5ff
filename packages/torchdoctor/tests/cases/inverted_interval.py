from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class _Copying(Classifier):
    """Learns from a copy of itself as well, which follows every ten steps."""

    def __init__(self) -> None:
        super().__init__()
        self.copy = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.follow()

    def follow(self) -> None:
        self.copy.load_state_dict(self.net.state_dict())

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        with torch.no_grad():
            known = self.copy(x).softmax(1)
        scores = self(x)
        return F.cross_entropy(scores, y) + 0.1 * F.cross_entropy(scores, known)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


class Model(_Copying):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.global_step % 10:  # here
            self.copy.load_state_dict(self.net.state_dict())
        return self.loss(batch)


class Repaired(_Copying):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.global_step % 10 == 0:
            self.copy.load_state_dict(self.net.state_dict())
        return self.loss(batch)
