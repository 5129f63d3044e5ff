"""A schedule that its author has taken out of what is returned, and left in a comment."""

from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)  # noqa: F841
        return [optimizer]  # , [schedule]
