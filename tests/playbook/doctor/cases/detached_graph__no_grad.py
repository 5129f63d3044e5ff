from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def features(self, x: Tensor) -> Tensor:
        with torch.no_grad():  # here
            return self.net(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Repaired(Model):
    """The same net, frozen on purpose: it is in no optimizer."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.head.parameters(), lr=1e-2)
