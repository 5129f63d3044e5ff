from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Reads a row of its results without gradients, and fills it with others then."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        out = torch.zeros(len(x), 3, device=x.device)
        with torch.no_grad():
            row = out[0].abs_()
        out[:] = self(x)
        del row
        return F.cross_entropy(out, y)
