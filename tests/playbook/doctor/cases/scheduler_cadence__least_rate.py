from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Model(Classifier):
    """The lowest rate is a hundred times the rate, in place of a hundredth."""

    share = 100

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50, eta_min=self.share * 1e-3)  # here
        return [optimizer], [schedule]


class Repaired(Model):
    share = 0.01
