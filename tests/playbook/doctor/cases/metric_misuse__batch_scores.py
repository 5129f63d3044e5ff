from typing import Any

from torch.utils.data import DataLoader
from torchmetrics import Metric
from torchmetrics.classification import MulticlassF1Score
from torchmetrics.functional import f1_score

from tests.playbook.doctor.programs import Blobs, Classifier


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=5)


class Model(Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        score = f1_score(self(x), y, task="multiclass", num_classes=3, average="macro")
        self.log("val_f1", score)  # here


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.f1: Metric = MulticlassF1Score(3)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.f1(self(x), y)
        self.log("val_f1", self.f1)
