from typing import Any

from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Metrics that are attributes, and stand in a list as well."""

    def __init__(self) -> None:
        super().__init__()
        self.micro, self.macro = MulticlassAccuracy(3, average="micro"), MulticlassAccuracy(3)
        self.metrics: list[Metric] = [self.micro, self.macro]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        for number, metric in enumerate(self.metrics):
            metric(scores, y)
            self.log(f"val_accuracy_{number}", metric)
