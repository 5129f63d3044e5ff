from typing import Any

import torch
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Starts from equal logits: the last layer is zero, and leaves zero at any rate."""

    lr = 1e-3

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.net[2].weight)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)  # here


class Model(Repaired):
    lr = 2e-8
