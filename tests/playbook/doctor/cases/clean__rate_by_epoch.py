from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Stepped by epochs, for as many as there will be batches in fifteen; said twice, and alike."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: max(0.05, 1 - epoch / 300))
        inner = {"scheduler": schedule, "interval": "epoch"}
        return {"optimizer": optimizer, "lr_scheduler": inner, "interval": "epoch", "frequency": 1}
