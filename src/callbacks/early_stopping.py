"""Stops a training that no longer improves, at the same step even if the run is interrupted and resumed."""

from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping as LightningEarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason


class EarlyStopping(LightningEarlyStopping):
    """Stops training when a metric has not improved for a number of validations, or is not finite.

    Differs from Lightning's class only in resumed runs: a training that was stopped early does not continue, and the
    current patience overrides the one in the checkpoint.

    Args:
        monitor: name of the logged metric.
        mode: whether the metric should decrease (min) or increase (max).
        patience: validations without improvement after which training stops, at least 1.
        min_delta: smallest change that counts as an improvement, at least 0.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        monitor: str = "val/loss",
        mode: Literal["min", "max"] = "min",
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience: expected at least 1 validation, got {patience}")
        if min_delta < 0:
            raise ValueError(f"min_delta: expected at least 0, got {min_delta}")
        super().__init__(monitor, min_delta, patience, mode=mode)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        reason = self.stopping_reason
        exhausted = reason == EarlyStoppingReason.PATIENCE_EXHAUSTED
        if reason == EarlyStoppingReason.NOT_STOPPED or (exhausted and self.wait_count < self.patience):
            self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
            return
        trainer.should_stop = True
        if trainer.is_global_zero:
            more = f"; set a patience above {self.wait_count} to continue" if exhausted else ""
            print(f"EarlyStopping: training has already stopped because of {self.monitor}{more}", flush=True)
