from typing import Any

import torch
from sklearn.metrics import f1_score
from torch import Tensor
from torchmetrics.classification import MulticlassRecall

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Logs scores of batches as such, and those of the epoch beside."""

    def __init__(self) -> None:
        super().__init__()
        self.recall = MulticlassRecall(3)
        self.results: list[tuple[Tensor, Tensor]] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        self.log("batch_f1", f1_score(y, scores.argmax(1), average="macro"), on_step=True, on_epoch=False)
        self.log("batch_recall", self.recall(scores, y))
        self.results.append((scores.argmax(1), y))

    def on_validation_epoch_end(self) -> None:
        predictions, labels = (torch.cat(items) for items in zip(*self.results, strict=True))
        self.log("val_f1", f1_score(labels, predictions, average="macro"))
        self.log("val_recall", self.recall.compute())
        self.recall.reset()
        self.results.clear()
