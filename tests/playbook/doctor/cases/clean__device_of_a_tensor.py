from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier, scaled_positions

__all__ = ["Data", "Model"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(Classifier):
    """Another file sends a tensor to where its own is, which is the CPU on purpose."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return super().training_step([x + scaled_positions(x.shape[1], 0.01 * x.std()), y], batch_idx)
