from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MeanMetric, SumMetric

from tests.playbook.doctor.programs import Blobs, Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Means that count every sample once, or are of no sample; a shorter last batch changes none of them."""

    def __init__(self) -> None:
        super().__init__()
        names = ("each", "weighed", "one_by_one", "shown", "largest", "rate", "right")
        self.meters = nn.ModuleDict({name: MeanMetric() for name in names})
        self.number = SumMetric()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        meters: Any = self.meters
        meters["each"].update(losses)
        meters["weighed"].update(losses.mean(), len(x))
        for loss in losses:
            meters["one_by_one"].update(loss)
        self.log("val_loss", meters["shown"](losses.mean()))  # the batch's own; Lightning weighs it
        meters["largest"].update(losses.max())
        meters["rate"].update(torch.tensor(1e-3))
        meters["right"].update((logits.argmax(1) == y).sum())
        self.number.update(len(x))

    def on_validation_epoch_end(self) -> None:
        meters: Any = self.meters
        for name, meter in meters.items():
            if name != "shown":
                self.log(f"val_{name}", meter.compute())
            meter.reset()
        self.log("val_number", self.number.compute())
        self.number.reset()


class Data(Blobs):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)
