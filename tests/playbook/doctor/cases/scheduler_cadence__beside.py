from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Warm-up and decay over the updates of eight epochs."""

    updates = 160

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        schedules = [
            torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=20),
            torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=self.updates - 20),
        ]
        warm = torch.optim.lr_scheduler.SequentialLR(optimizer, schedules, milestones=[20])
        return [
            {"optimizer": optimizer, "interval": "step", "lr_scheduler": {"scheduler": warm, "name": "rate"}}
        ]  # here


class Repaired(Model):
    def configure_optimizers(self) -> Any:
        [made] = super().configure_optimizers()
        return [{"optimizer": made["optimizer"], "lr_scheduler": made["lr_scheduler"] | {"interval": "step"}}]
