"""Contrast with earlier samples: training and validation each keep a ring of keys and the place of the next."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Queue(nn.Module):
    keys: Tensor
    pointer: Tensor

    def __init__(self, size: int = 200) -> None:
        super().__init__()
        self.register_buffer("keys", F.normalize(torch.randn(size, 3), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        start = int(self.pointer)
        self.keys[start : start + len(keys)] = keys
        self.pointer.fill_((start + len(keys)) % len(self.keys))


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.train_queue, self.val_queue = Queue(), Queue()

    def contrast(self, batch: Any, queue: Queue) -> Tensor:
        x, _ = batch
        first, second = (F.normalize(self(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        second = second.detach()
        others = first @ queue.keys.clone().T
        logits = torch.cat([(first * second).sum(1, keepdim=True), others], dim=1) / 0.2
        queue.push(second)
        return F.cross_entropy(logits, logits.new_zeros(len(x), dtype=torch.long))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.contrast(batch, self.train_queue)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.contrast(batch, self.val_queue))
