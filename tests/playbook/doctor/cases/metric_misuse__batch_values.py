from typing import Any

from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from tests.playbook.doctor.programs import Blobs, Classifier


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=5)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scores = MetricCollection([MulticlassAccuracy(3, average="micro"), MulticlassRecall(3)])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log_dict(self.scores(self(x), y))  # here


class Repaired(Model):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.scores.update(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.scores.compute())
        self.scores.reset()
