"""Stops a training that no longer improves, at the same step even if the run is interrupted and resumed."""

from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping as LightningEarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason

from playbook import direction, logged_measure, own_measure

UNKNOWN = "val/loss"  # until a validation shows which loss the model logs


class EarlyStopping(LightningEarlyStopping):
    """Stops training when a metric has not improved for a number of validations, or is not finite.

    Differs from Lightning's class only in resumed runs: a training that was stopped early does not continue, and the
    current patience overrides the one in the checkpoint.

    Args:
        monitor: name of the logged metric. Defaults to the task's own, which also chooses best.ckpt, or else to the
            first of val/loss, val_loss and valid_loss that is logged.
        mode: whether the metric should decrease (min) or increase (max). Defaults to the direction that the task or the
            metric states, or else min.
        patience: validations without improvement after which training stops, at least 1.
        min_delta: smallest change that counts as an improvement, at least 0.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        monitor: str | None = None,
        mode: Literal["min", "max"] | None = None,
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience: expected at least 1 validation, got {patience}")
        if min_delta < 0:
            raise ValueError(f"min_delta: expected at least 0, got {min_delta}")
        self._given = monitor, mode
        super().__init__(monitor or UNKNOWN, min_delta, patience, mode=mode or "min")

    @property
    def state_key(self) -> str:
        """Of the arguments, as it must be known before the metric is."""
        monitor, mode = self._given
        return self._generate_state_key(monitor=monitor or "auto", mode=mode or "auto")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            monitor, mode = self._given
            own = own_measure(pl_module)
            name = monitor or (own[0] if own else UNKNOWN)
            self._watch(name, mode or direction(pl_module, name) or "min")

    def _watch(self, monitor: str, mode: Literal["min", "max"]) -> None:
        if (monitor, mode) != (self.monitor, self.mode):
            self.monitor, self.mode = monitor, mode
            self.best_score = torch.tensor(float("inf") if mode == "min" else -float("inf"))

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._find_loss(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._find_loss(trainer)
        super().on_validation_end(trainer, pl_module)

    def _find_loss(self, trainer: Trainer) -> None:
        """Watches the loss that the model logs, where neither the user nor the task names a metric."""
        is_open = self._given[0] is None and own_measure(trainer.lightning_module) is None
        if is_open and (measure := logged_measure(trainer.lightning_module, trainer.callback_metrics)):
            self.monitor = measure[0]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "monitor": self.monitor}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})
        if self._given[0] is None:
            self.monitor = state_dict.get("monitor", self.monitor)

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
