"""Optimizers and schedules that look idle, doubled or of the wrong length, and are not."""

from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from cases import optimizer_recreated
from programs import Blobs, Classifier

# -- factor_of_a_warm_up
FactorOfAWarmUpData = Blobs


class FactorOfAWarmUpModel(Classifier):
    """Warms up from a tenth of the rate, which is a tenth as well."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + 1) / 10))]


# -- optimizers_without_a_state
OptimizersWithoutAStateData = Blobs


class OptimizersWithoutAStateModel(optimizer_recreated.Model):
    """Plain gradient descent remembers nothing, so that a new optimizer for each step loses nothing."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.step(batch, torch.optim.SGD(self.parameters(), lr=1e-2))


# -- rate_by_epoch
RateByEpochData = Blobs


class RateByEpochModel(Classifier):
    """Stepped by epochs, for as many as there will be batches in fifteen; said twice, and alike."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: max(0.05, 1 - epoch / 300))
        inner = {"scheduler": schedule, "interval": "epoch"}
        return {"optimizer": optimizer, "lr_scheduler": inner, "interval": "epoch", "frequency": 1}


# -- schedule_switched_off
ScheduleSwitchedOffData = Blobs


class ScheduleSwitchedOffModel(Classifier):
    """A schedule that its author has taken out of what is returned, and left in a comment."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)  # noqa: F841
        return [optimizer]  # , [schedule]


# -- short_warmup
ShortWarmupData = Blobs


class ShortWarmupModel(Classifier):
    """Warms up over a share of all steps and a share of all epochs, which is nothing in a very short training."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        warmup = int(0.05 * self.trainer.estimated_stepping_batches)
        epochs = int(0.1 * (self.trainer.max_epochs or 0))
        schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup, (step + 1) / epochs))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
