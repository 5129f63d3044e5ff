from typing import Any

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Written for a GPU, which the review does without."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step([part.cuda(0, non_blocking=True) for part in batch], batch_idx)
