import io
from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        torch.save(self.net.state_dict(), io.BytesIO())
        return super().training_step(batch, batch_idx)
