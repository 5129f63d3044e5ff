"""Keeps the run directory: configuration, environment, status and the newest metrics."""

import sys
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from playbook.errors import Stopped
from playbook.facts import abridged
from playbook.runs.directory import Run, write_atomically
from playbook.runs.loggers import MetricsCSV


class Record(Callback):
    """Writes a run's configuration and environment before it starts, and its progress at every validation (always on).

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

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero:
            return
        self._started_at = time.monotonic()

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
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.continue_from(trainer.global_step, self._num_rows)
        self._training = True
        if not continued:
            self.run.metrics_json.unlink(missing_ok=True)
        limits = {"max_epochs": trainer.max_epochs, "max_steps": trainer.max_steps}
        facts = getattr(trainer, "keep_facts", None)
        self._update(trainer, status="running", limits=limits, facts=abridged(facts.facts) if facts else {})

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        rows = [logger.num_rows for logger in trainer.loggers if isinstance(logger, MetricsCSV)]
        checkpoint["metrics_rows"] = rows[0] if rows else None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            self._num_rows = checkpoint.get("metrics_rows")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._update(trainer, **_counts(trainer))

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


def _counts(trainer: Trainer) -> dict[str, int]:
    """What the data counted, in all processes, if it is a data module that counts (see Data.gather_counts)."""
    gather_counts = getattr(getattr(trainer, "datamodule", None), "gather_counts", None)
    return {} if gather_counts is None else gather_counts()
