from typing import Any

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Clips in a hook that comes after the optimizer's step."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here


class Repaired(Classifier):
    def on_after_backward(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
