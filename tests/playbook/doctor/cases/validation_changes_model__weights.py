from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    pass


class Model(OneStep):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with torch.enable_grad():
            loss = self.step(batch)
        self.log("val_loss", loss)
        loss.backward()
        self.optimizers().step()  # here
        self.zero_grad()
