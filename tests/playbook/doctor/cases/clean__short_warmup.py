from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Warms up over a share of all steps and a share of all epochs, which is nothing in a very short training."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        warmup = int(0.05 * self.trainer.estimated_stepping_batches)
        epochs = int(0.1 * (self.trainer.max_epochs or 0))
        schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup, (step + 1) / epochs))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
