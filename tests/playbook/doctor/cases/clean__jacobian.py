from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    """Takes the Jacobian of its network for every sample, by torch.func."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        slopes = torch.func.vmap(torch.func.jacrev(self.net))(x)
        return super().step(batch) + 1e-3 * slopes.square().mean()
