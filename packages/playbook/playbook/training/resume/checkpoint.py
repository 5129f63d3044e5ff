"""Saves best.ckpt and last.ckpt at positions from which training can resume exactly."""

import math
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint

from playbook.checkpoints.files import replace
from playbook.errors import Stopped, UserError
from playbook.processes import gathered, highest
from playbook.runs.directory import Run
from playbook.training.lightning import position
from playbook.training.lightning.optimization import gradients_are_pending
from playbook.training.lightning.results import has_validated
from playbook.training.measure import LOSSES, Mode, direction, logged_measure, own_measure
from playbook.training.monitors import nearest_metric

SHRINKING = ("loss", "err", "perplexity", "mae", "mse", "nll", "bits", "distance")  # in names of metrics to minimise


class Checkpoint(LightningCheckpoint):
    """Saves checkpoints at intervals, and the best epoch by a metric (always on).

    Both files are written just before the next batch or epoch starts, unless gradients wait for their optimizer step.
    At this point all hooks of the previous batch are done, so that training resumes exactly. Checkpoints that Lightning
    saves elsewhere lose a validation, a plateau step, accumulated gradients or results of a module's own
    on_train_batch_end. The previous last.ckpt is kept as previous.ckpt. A signal stops the training at the same point,
    or during a validation, which then starts again when the run resumes. ExactResume requests these saves before any
    other callback runs.

    Args:
        monitor: logged metric that decides which epoch is saved as best.ckpt. auto takes the one that the task names as
            its `monitor`, or else the first of val/loss, val_loss and valid_loss that is logged; null saves no
            best.ckpt.
        mode: whether the smallest (min) or the largest (max) value is the best. Defaults to the direction that the task
            or the metric states, or else min.
        every_n_steps: optimizer steps between two saves of last.ckpt.
        every_n_minutes: minutes between two saves of last.ckpt.
        every_n_epochs: epochs between two saves of last.ckpt.
        requeue_exit_code: exit code after SIGTERM or SIGUSR1, for schedulers that requeue a job on a certain code (99
            in Grid Engine). Defaults to 128 plus the signal's number: 143 and 138.

    Raises:
        ValueError: an interval is not above 0.
    """

    def __init__(
        self,
        monitor: str | None = "auto",
        mode: Literal["min", "max"] | None = None,
        every_n_steps: int | None = None,
        every_n_minutes: float | None = 10.0,
        every_n_epochs: int | None = 1,
        requeue_exit_code: int | None = None,
    ) -> None:
        super().__init__()
        cadence = {"every_n_steps": every_n_steps, "every_n_minutes": every_n_minutes, "every_n_epochs": every_n_epochs}
        for name, value in cadence.items():
            if value is not None and value <= 0:
                raise ValueError(f"{name}: expected more than 0, got {value}")
        if requeue_exit_code is not None and not 1 <= requeue_exit_code <= 255:
            raise ValueError(f"requeue_exit_code: expected 1 to 255, got {requeue_exit_code}")
        self.is_automatic = monitor == "auto"
        self.monitor = None if self.is_automatic else monitor  # chosen at the first validation if automatic
        self.mode: str = mode or "min"
        self.requeue_exit_code = requeue_exit_code
        self.every_n_steps = every_n_steps
        self.every_n_minutes = every_n_minutes
        self.every_n_epochs = every_n_epochs
        self.folder: Path | None = None  # None saves nothing; the command line sets the run's
        self.config = ""  # the run's config.yaml, which every checkpoint carries
        self.best: dict[str, Any] = {}  # score, epoch, step and metrics of best.ckpt
        self._given_mode = mode
        self._own: tuple[str, Mode] | None = None  # the task's metric and its direction
        self.stop_signal: int | None = None  # that came to this process, at any moment
        self.stopping: int | None = None  # on which all processes agree
        self.failure: OSError | None = None  # of the newest attempt to save
        self._former_measure = ""  # that best.ckpt was chosen by, if another one counts from now on
        self._due = self._best_due = False
        self._saved_at = time.monotonic()
        self.saved_step = -1  # optimizer step of the newest last.ckpt

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"best": self.best}
        return state | {"own": list(self._own or ())} if self.is_automatic else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        best = state_dict["best"]
        measure = best.get("monitor", self.monitor), best.get("mode", self.mode)
        if self.is_automatic and best and state_dict.get("own", list(measure)) == list(self._own or ()):
            self.monitor, self.mode = measure  # as before, whatever is logged first from here on
        self.best = best if measure == (self.monitor, self.mode) else {}
        self._former_measure = "" if self.best == best else f"{measure[0]} ({measure[1]})"

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["config"] = self.config

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at, self.saved_step = time.monotonic(), trainer.global_step
        if self._former_measure and trainer.is_global_zero:
            print(f"best.ckpt will be replaced: it is the best by {self._former_measure}", flush=True)
        self._former_measure = ""
        if self.monitor is None or self.is_automatic or self._given_mode is not None or not trainer.is_global_zero:
            return
        if direction(pl_module, self.monitor) is None and not any(word in self.monitor for word in SHRINKING):
            print(
                f"--checkpoint.mode: nothing states the direction of {self.monitor}, so the smallest is the best; "
                "set max for the largest",
                flush=True,
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._own = own_measure(pl_module)
            if self.is_automatic:
                self.monitor = None
            elif self.monitor is not None:
                self.mode = self._given_mode or direction(pl_module, self.monitor) or "min"
        self.folder = trainer.strategy.broadcast(self.folder)  # only the first process may know it
        checkpoints = gathered(trainer, getattr(trainer, "continues", None))
        if len(set(checkpoints)) > 1:
            other = next(path for path in checkpoints if path != checkpoints[0])
            raise UserError(
                f"--run_dir: a process would resume {other}, the first process {checkpoints[0]}; expected a directory "
                "that all hosts share"
            )

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if self.every_n_steps and step - self.saved_step >= self.every_n_steps:
            self._due = True
        if self.every_n_minutes and time.monotonic() - self._saved_at >= 60 * self.every_n_minutes:
            self._due = True

    def before_batch(self, trainer: Trainer) -> None:
        """Saves what is due; called at the start of every batch but an epoch's first."""
        self._agree(trainer)
        if (self._due or self._best_due or self.stopping) and not gradients_are_pending(trainer):
            self._save_between(trainer, position.at_batch_start(trainer))

    def before_epoch(self, trainer: Trainer) -> None:
        """Saves what is due; called at the start of every epoch."""
        self._agree(trainer)
        if self._due or self._best_due or self.stopping:
            self._save_between(trainer, position.at_epoch_start(trainer))

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        # several processes may validate different numbers of batches, and could not agree here
        alone = trainer.world_size == 1 and trainer.state.fn == "fit" and not trainer.sanity_checking
        if self.stop_signal and alone and not gradients_are_pending(trainer):
            self.stopping = self.stop_signal
            with position.at_validation_start(trainer):
                self._save_last(trainer)

    def _agree(self, trainer: Trainer) -> None:
        """All processes save, and stop, at the same step."""
        due, number = highest(trainer, int(self._due), self.stop_signal or 0)
        self._due, self.stopping = bool(due), number or None

    def choice(self, trainer: Trainer) -> str:
        """Which epoch is best.ckpt and by which metric, or why there is none; for the summary.

        Args:
            trainer: that has trained.
        """
        if trainer.fast_dev_run:  # type: ignore[attr-defined]  # set by a connector
            return "none, because of fast_dev_run"
        if self.best:
            extreme = "largest" if self.best["mode"] == "max" else "smallest"
            return f"best.ckpt is epoch {self.best['epoch']}, {extreme} {self.best['monitor']} {self.best['score']:.4g}"
        if self.monitor is None and not self.is_automatic:
            reason = "checkpoint.monitor is null"
        elif self.monitor is not None and self.monitor in trainer.callback_metrics:
            reason = f"{self.monitor} was never a finite number"
        elif not has_validated(trainer):
            reason = "no validation ran"
        else:
            own = [self._own[0]] if self._own else []
            names = [self.monitor] if self.monitor else list(dict.fromkeys([*own, *LOSSES]))
            reason = f"nothing logged {' or '.join(names)}; see --checkpoint.monitor"
        return f"last.ckpt; no best.ckpt, because {reason}"

    @property
    def dirpath(self) -> str | None:
        """As Lightning's ModelCheckpoint has it."""
        return None if self.folder is None else str(self.folder)

    @property
    def best_model_path(self) -> str:
        """As Lightning's ModelCheckpoint has it."""
        return str(self.folder / "best.ckpt") if self.folder is not None and self.best else ""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._save_best(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save_best(trainer)  # a metric of the training set; one of the validation is no better than itself
        epoch = trainer.current_epoch  # counts from 0
        if self.best.get("epoch") == epoch + 1:  # the training metrics of the best epoch are known only now
            self.best["metrics"] |= {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self.every_n_epochs and (epoch + 1) % self.every_n_epochs == 0:
            self._due = True
        if self.monitor and not self.is_automatic and epoch == 0 and has_validated(trainer):
            self._require_monitored(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._due = True
        self._agree(trainer)
        self._save_between(trainer, nullcontext())

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if not isinstance(exception, Exception) or trainer.state.fn != "fit" or trainer.world_size > 1:
            return
        if place := position.while_fetching(trainer):  # the data failed, so the training so far is sound
            with place:
                if self._best_due:
                    self._save(trainer, "best")
                saved = self._save(trainer, "last")
            if saved and self.folder is not None:
                print(f"\nsaved at step {trainer.global_step}, before the batch that could not be loaded", flush=True)
                print(f"continue  {Run(self.folder.parent).continue_command()}", flush=True)

    def _require_monitored(self, trainer: Trainer) -> None:
        logged = trainer.callback_metrics
        if self.monitor not in logged:
            close = nearest_metric(str(self.monitor), logged)
            raise UserError(f"--checkpoint.monitor {self.monitor}: nothing logs it{close}")

    def _save_best(self, trainer: Trainer) -> None:
        if self.is_automatic and self.monitor is None:
            measure = logged_measure(trainer.lightning_module, trainer.callback_metrics)
            if measure is not None:
                self.monitor, self.mode = measure[0], self._given_mode or measure[1]
                if self.best.get("monitor") != self.monitor:
                    self.best = {}  # of another model that this process has trained before
        value = trainer.callback_metrics.get(self.monitor) if self.monitor else None
        if value is None or not math.isfinite(score := float(value)):
            return
        former = self.best.get("score")
        if former is not None and (score <= former if self.mode == "max" else score >= former):
            return
        # the weights stay as they are until the next batch or epoch starts, where they are saved
        self._best_due = True
        self.best = {
            "monitor": self.monitor,
            "mode": self.mode,
            "score": score,
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
        }

    def _save_between(self, trainer: Trainer, place: AbstractContextManager[None]) -> None:
        with place:
            if self._best_due:  # before last.ckpt, which says what the best is
                self._save(trainer, "best")
            if self._due or self.stopping:
                self._save_last(trainer)

    def _save_last(self, trainer: Trainer) -> None:
        self._due = self._best_due = False
        self._saved_at, self.saved_step = time.monotonic(), trainer.global_step
        self._save(trainer, "last")
        if self.stopping:
            preempted = self.stopping != signal.SIGINT
            raise Stopped(self.stopping, self.requeue_exit_code if preempted else None)

    def _save(self, trainer: Trainer, name: str) -> bool:
        """Saves `<name>.ckpt`; returns whether it is on disk."""
        if name == "best":
            self._best_due = False
        if self.folder is None or trainer.fast_dev_run:  # type: ignore[attr-defined]  # set by a connector
            return False
        target, new = self.folder / f"{name}.ckpt", self.folder / f"{name}.new"
        failure: OSError | None = None
        try:
            trainer.save_checkpoint(new)
        except OSError as error:  # a full disk must not cost the training
            failure = error
            trainer.strategy.barrier("Trainer.save_checkpoint")  # where the other processes wait
        if failure is None and trainer.is_global_zero:
            try:
                replace(new, target, self.folder / "previous.ckpt" if name == "last" else None)
            except OSError as error:
                failure = error
        if not any(highest(trainer, int(failure is not None))):
            self.failure = None
            return True
        failure = failure or OSError("another process could not save")
        if self.failure is None and trainer.is_global_zero:
            print(f"\nwarning: {target.as_posix()} was not saved: {failure.strerror}; continuing", file=sys.stderr)
        self.failure = failure
        return False
