from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

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


# -- divergence
DivergenceData = Blobs


class DivergenceModel(Classifier):
    """Learns soft labels; the divergence takes the logarithms of its first argument only."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        soft = 0.9 * F.one_hot(y, 3) + 0.1 / 3
        return F.kl_div(self.scores(x), soft, reduction="batchmean")  # here

    def scores(self, x: Tensor) -> Tensor:
        return self(x).softmax(1)


class DivergenceRepaired(DivergenceModel):
    def scores(self, x: Tensor) -> Tensor:
        return self(x).log_softmax(1)
