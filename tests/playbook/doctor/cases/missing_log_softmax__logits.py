from typing import Any

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Gives logits to a loss that takes log-probabilities: it falls without a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.loss: nn.Module = nn.NLLLoss()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x), y)  # here


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
