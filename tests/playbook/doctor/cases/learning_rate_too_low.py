from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(
            self.parameters(),
            weight_decay=0.01,
            lr=1e-8,  # here
        )


class Repaired(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), weight_decay=0.01, lr=1e-3)
