from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Written for a GPU, which the review does without."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = (part.cuda(0, non_blocking=True) for part in batch)
        noise = torch.randn(x.shape, device="cuda")
        return super().training_step([x + 0.01 * noise.to(torch.device("cuda:0")), y], batch_idx)
