from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """The rate of the first epoch is zero."""

    first = 0

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(  # here
            optimizer, lambda epoch: min(1.0, (epoch + self.first) / 10)
        )
        return [optimizer], [schedule]


class Repaired(Model):
    first = 1
