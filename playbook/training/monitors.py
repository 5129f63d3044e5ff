"""Reports a monitored metric that is never logged before training has changed any weight."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torchmetrics import MetricCollection

from playbook.errors import UserError, nearest
from playbook.training.lightning import logged_names


class CheckMonitors(Callback):
    """Checks that monitored metrics were logged in the sanity check or the first step (always on)."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._checked = False

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._logged |= set(trainer.callback_metrics)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        if self._checked:
            return
        self._checked = True
        validates = trainer.enable_validation
        if (validates and not self._logged) or _logs_at_epoch_end(pl_module):
            return  # no sanity check, as on resume, or names that show at the end of an epoch: asked there
        for collection in pl_module.modules():
            if isinstance(collection, MetricCollection):
                self._logged |= {str(name) for name in collection}
        self._logged |= logged_names(trainer)
        if not validates:
            self._logged = {name for name in self._logged if not name.startswith("val")}
        for option, monitor in _monitors(trainer):
            if monitor not in self._logged:
                why = "" if validates or not monitor.startswith("val") else " while validation is off"
                raise UserError(f"{option} {monitor}: nothing logs it{why}{nearest(monitor, self._logged)}")


def _logs_at_epoch_end(module: LightningModule) -> bool:
    """Whether on_train_epoch_end may log names that are not known before; a class says that it does not (see Task)."""
    if not is_overridden("on_train_epoch_end", module):
        return False
    owner = next(cls for cls in type(module).__mro__ if "on_train_epoch_end" in vars(cls))
    return not vars(owner).get("logs_collections_alone", False)


def _monitors(trainer: Trainer) -> list[tuple[str, str]]:
    monitors: list[tuple[str, Any]] = [
        (_option(callback), getattr(callback, "monitor", None))
        for callback in trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
    ]
    monitors += [
        ("--model.schedule.monitor", config.monitor)
        for config in trainer.lr_scheduler_configs
        if config.reduce_on_plateau
    ]
    return [(option, monitor) for option, monitor in monitors if isinstance(monitor, str)]


def _option(callback: Callback) -> str:
    name = type(callback).__name__
    return "--checkpoint.monitor" if name == "Checkpoint" else f"--trainer.callbacks: {name}: monitor"
