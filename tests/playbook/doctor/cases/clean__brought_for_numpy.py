"""Predictions that a validation sends to the CPU on one line, and counts with NumPy on another."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]

NUM_DEVICES = torch.cuda.device_count() if torch.cuda.is_available() else 1


class Model(Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        self.log("val_loss", cross_entropy(logits, y))
        chosen = logits.argmax(1).to("cpu")
        self.log("most", float(np.bincount(chosen.numpy()).max()))
