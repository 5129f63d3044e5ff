"""Keeps the run directory: configuration, environment, status and the newest metrics."""

import sys
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from playbook.checkpoints.plain import plain_values
from playbook.errors import Stopped
from playbook.facts import abridged
from playbook.runs.directory import Run, write_atomically
from playbook.runs.loggers import MetricsCSV
from playbook.training.hyperparameters import plain_hyperparameters
from playbook.training.lightning.results import last_logged_step, step_values


class Record(Callback):
    """Writes a run's configuration and environment before it starts, and its progress at every validation (always on).

    At the end of an epoch it also passes on to all loggers, once, the newest value of what self.log has collected by
    step and no logger has seen, as epochs may be shorter than log_every_n_steps.

    Args:
        run: the run directory.
        config: text of config.yaml.
        values: the same as plain values, for loggers that show a configuration.
    """

    def __init__(self, run: Run, config: str, values: dict[str, Any]) -> None:
        self.run = run
        self.config = config
        self.values = values
        self._started_at = 0.0
        self._seconds_before = 0.0
        self._training = False
        self._num_rows: int | None = None  # of metrics.csv at the checkpoint that is continued
        self._former: dict[str, Any] = {}  # step values and names logged in the epoch that is continued

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero:
            return
        self._started_at = time.monotonic()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for module, section in ((pl_module, "model"), (getattr(trainer, "datamodule", None), "data")):
            values = plain_hyperparameters(module) if getattr(module, "hparams", None) else {}
            plain = plain_values(values, section)  # refuses before the first step what no checkpoint could hold
            if (left_out := values.keys() - plain.keys()) and trainer.is_global_zero:
                names = ", ".join(sorted(map(str, left_out)))
                print(f"hyperparameters left out of checkpoints, as they are modules: {names}", flush=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        # only now: an attempt to continue that fails leaves what was there
        write_atomically(self.run.config, self.config)
        self.run.record_environment(sys.argv)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.log_hyperparams(self.values)
        continued = trainer.global_step > 0
        self._seconds_before = self.run.read_metrics().get("train_seconds", 0.0) if continued else 0.0
        if (table := _table(trainer)) is not None:
            table.continue_from(trainer.global_step, self._num_rows)
            table.epoch_names = set(self._former.get("names", ()))
        self._training = True
        if not continued:
            self.run.metrics_json.unlink(missing_ok=True)
        limits = {"max_epochs": trainer.max_epochs, "max_steps": trainer.max_steps}
        facts = getattr(trainer, "keep_facts", None)
        self._update(trainer, status="running", limits=limits, facts=abridged(facts.facts) if facts else {})

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        table = _table(trainer)
        checkpoint["metrics_rows"] = None if table is None else table.num_rows
        if table is not None and trainer.state.fn == "fit":
            checkpoint["step_values"] = {"values": self._values(trainer), "names": sorted(table.epoch_names)}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            self._num_rows = checkpoint.get("metrics_rows")
            self._former = checkpoint.get("step_values", {})

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._update(trainer, **_counts(trainer))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        table = _table(trainer)
        if table is None:
            return
        is_asked_for = trainer.log_every_n_steps > 0  # type: ignore[attr-defined]  # set by a connector
        values = self._values(trainer) if is_asked_for else {}
        if missed := {name: value for name, value in values.items() if name not in table.epoch_names}:
            for logger in trainer.loggers:
                logger.log_metrics({"epoch": trainer.current_epoch, **missed}, step=last_logged_step(trainer))
                logger.save()
        table.epoch_names = set()
        self._former = {}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._update(trainer, **_counts(trainer))  # not at the end: the task logs after the callbacks saw that

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._update(trainer, **_counts(trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        status = "interrupted" if isinstance(exception, Stopped | KeyboardInterrupt) else "failed"
        if trainer.state.fn == "fit" and self._training:
            self._update(trainer, status=status)
        elif self._started_at and trainer.is_global_zero:  # before the first step, or in the test after the last one
            self.run.update_metrics(status=status)

    def _values(self, trainer: Trainer) -> dict[str, float]:
        """The newest value of everything logged by step in this epoch, also before the run was continued."""
        newest = {name: float(value) for name, value in step_values(trainer).items()}
        return self._former.get("values", {}) | newest

    def _update(self, trainer: Trainer, **values: Any) -> None:
        if not trainer.is_global_zero:
            return
        self.run.update_metrics(
            **values,
            epoch=trainer.current_epoch,
            step=trainer.global_step,
            train_seconds=round(self._seconds_before + time.monotonic() - self._started_at, 3),
            metrics={name: float(value) for name, value in trainer.callback_metrics.items()},
            best=getattr(trainer.checkpoint_callback, "best", None) or None,
        )


def _table(trainer: Trainer) -> MetricsCSV | None:
    return next((logger for logger in trainer.loggers if isinstance(logger, MetricsCSV)), None)


def _counts(trainer: Trainer) -> dict[str, int]:
    """What the data counted, in all processes, if it is a data module that counts (see Data.gather_counts)."""
    gather_counts = getattr(getattr(trainer, "datamodule", None), "gather_counts", None)
    return {} if gather_counts is None else gather_counts()
