from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.3)  # here
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Repaired(Model):
    def configure_optimizers(self) -> Any:
        made = super().configure_optimizers()
        return {"optimizer": made["optimizer"], "lr_scheduler": made["lr_scheduler"]["scheduler"]}
