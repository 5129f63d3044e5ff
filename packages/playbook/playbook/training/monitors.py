"""Reports a monitored metric that is never logged before training has changed any weight."""

from collections.abc import Collection
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torchmetrics import MetricCollection

from playbook.errors import UserError, nearest
from playbook.training.lightning.results import logged_names
from playbook.training.lightning.settings import checks_after_training_epochs


class CheckMonitors(Callback):
    """Checks that monitored metrics were logged in the sanity check or the first step (always on)."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._validated: set[str] = set()  # names that validations log, of this process or the checkpoint's
        self._checked = False

    def state_dict(self) -> dict[str, Any]:
        return {"validated": sorted(self._validated)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._validated = set(state_dict["validated"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        every = trainer.check_val_every_n_epoch or 1
        if every > 1:
            _match_cadence(trainer, every, self._validated)

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validated = set(trainer.callback_metrics) | logged_names(trainer)
        self._logged |= self._validated

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
                raise UserError(f"{option} {monitor}: nothing logs it{why}{nearest_metric(monitor, self._logged)}")


def nearest_metric(monitor: str, names: Collection[str]) -> str:
    """«. Nearest: a, b»: with several validation loaders, what the metric is called for each of them.

    Args:
        monitor: name that nothing logs.
        names: of logged metrics.
    """
    of_loaders = sorted(name for name in names if name.startswith(f"{monitor}/dataloader_idx_"))
    return f". Nearest: {', '.join(of_loaders)}" if of_loaders else nearest(monitor, names)


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


def _match_cadence(trainer: Trainer, every: int, validated: Collection[str]) -> None:
    """Prints what a validation every few epochs means for those who wait for its metrics, and adapts schedulers.

    Args:
        trainer: whose training starts.
        every: epochs between two validations.
        validated: names of metrics that validations log.
    """
    lines = []
    for config in trainer.lr_scheduler_configs:
        follows = config.reduce_on_plateau and config.monitor in validated and config.interval == "epoch"
        if follows and config.frequency % every:  # it would lack the metric in epoch 1, and later use it twice
            config.frequency = every * config.frequency
            lines.append(
                f"{type(config.scheduler).__name__} looks at {config.monitor} every {config.frequency} epochs, as "
                f"validation runs every {every}"
            )
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # set by a connector
        if not isinstance(callback, EarlyStopping) or callback.monitor not in validated:
            continue
        name, epochs = type(callback).__name__, callback.patience * every
        if checks_after_training_epochs(callback):
            raise UserError(
                f"--trainer.callbacks: {name}: check_on_train_epoch_end: expected false, as {callback.monitor} is "
                f"logged every {every} epochs, got true"
            )
        lines.append(f"{name}: a patience of {callback.patience} validations is {epochs} epochs here")
    if trainer.is_global_zero:
        for line in lines:
            print(line, flush=True)
