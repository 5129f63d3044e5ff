from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


@torch.autocast("cuda", enabled=False)
def energy(scores: Tensor) -> Tensor:
    """Of ten thousand times the scores, which float16 cannot hold."""
    return (scores.float() * 1e4).square().mean().log()


class Model(OneStep):
    """Leaves autocast off in a function, as a decorator says."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        scores = self(x)
        return F.cross_entropy(scores, y) + 1e-4 * energy(scores)
