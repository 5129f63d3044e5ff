from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Scaling:
    def __init__(self) -> None:
        self.scales = torch.linspace(0.5, 1.5, 8)  # here

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.scales


class Model(Classifier):
    """Validates with noise of its own generator, on the batch's device."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling = Scaling()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.scaling(x))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        generator = torch.Generator(device=x.device).manual_seed(batch_idx)
        noise = torch.randn(x.shape, generator=generator, device=x.device)
        super().validation_step((x + 0.1 * noise, y), batch_idx)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", self.scaling.scales)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scales)
