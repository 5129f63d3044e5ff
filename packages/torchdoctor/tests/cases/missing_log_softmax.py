from typing import Any

import torch.nn.functional as F
from torch import nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Gives probabilities to a loss that takes their logarithms."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x).softmax(1), y)  # here


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x).log_softmax(1), y)


# -- logits
LogitsData = Blobs


class LogitsModel(Classifier):
    """Gives logits to a loss that takes log-probabilities: it falls without a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.loss: nn.Module = nn.NLLLoss()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x), y)  # here


class LogitsRepaired(LogitsModel):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()


# -- scores
ScoresData = Blobs


class ScoresModel(Classifier):
    """Gives logits to the function for log-probabilities."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x), y)  # here


class ScoresRepaired(Classifier):
    pass
