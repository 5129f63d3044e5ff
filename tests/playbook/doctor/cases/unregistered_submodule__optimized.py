from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


class Model(Repaired):
    """Gives its optimizer a tensor that no checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        del self.scale
        self.scale = torch.ones(3, requires_grad=True)  # here

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW([*self.parameters(), self.scale], lr=1e-3)
