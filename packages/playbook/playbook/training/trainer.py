"""Lightning's Trainer with Playbook's callbacks and run directory, for the command line and Python."""

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.utilities.model_helpers import is_overridden

from playbook.checkpoints.io import AtomicCheckpointIO, first_valid
from playbook.errors import Stopped, UserError
from playbook.facts import abridged
from playbook.network import networks
from playbook.processes import is_started_by_lightning
from playbook.runs import card
from playbook.runs.directory import ROOT, Run, checkpoint_candidates, is_checkpoint, new_run
from playbook.runs.loggers import KeepsNothing, MetricsCSV
from playbook.runs.predictions import WritePredictions
from playbook.seeding import repeatable
from playbook.training.companions import arrange_callbacks
from playbook.training.ending import Ending, endings, plain, source_line
from playbook.training.facts import KeepFacts, opened
from playbook.training.hyperparameters import keep_plain_hyperparameters
from playbook.training.lightning.epoch_loop import shorten_steps
from playbook.training.loaders import keep_loaders, no_loader
from playbook.training.quiet import quiet_loggers, quiet_warnings
from playbook.training.record import Record
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.speed import measured
from playbook.training.stages import reachable_loaders
from playbook.training.timing import Timing


class Trainer(pl.Trainer):
    """Lightning's Trainer, plus a run directory, exact resume and a summary.

    `Trainer(max_epochs=5).fit(model, datamodule=data)` writes the same run directory as the command line, and prints as
    little.

    Args:
        run_dir: directory of the run. Defaults to a dated one in `runs/` below default_root_dir; False writes none.
        checkpoint: options of checkpoints: when to save them, and by which metric to choose the best.
        run: run directory of the command line; in Python, use run_dir.
        config: text of the run's config.yaml, which is saved in every checkpoint.
        values: the same as plain values, for loggers that show a configuration.
        settings: arguments of Lightning's Trainer.
    """

    def __init__(
        self,
        *,
        run_dir: str | Path | Literal[False] | None = None,
        checkpoint: Checkpoint | None = None,
        run: Run | None = None,
        config: str = "",
        values: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        quiet_warnings()
        quiet_loggers()
        _look_for_gpus_once()
        _check_limits(settings)
        self.run = run
        self.config = config
        self.has_run = run is not None or (run_dir is not False and not settings.get("fast_dev_run"))
        self._folder = Path(run_dir) if run_dir else None
        self._root = Path(settings.get("default_root_dir") or ".") / ROOT
        self.continues: str | None = None  # the checkpoint that this process found; Checkpoint compares them
        self.endings: list[Ending] = []  # what ended the training
        self.speed: dict[str, Any] = {}  # where its time went, and what bounded it
        self._should_stop = False
        self.stopped_at = ""
        self._from_python = run is None
        self._record = Record(run or Run(Path()), config, values or {})
        user_callbacks = as_list(settings.pop("callbacks", None))
        own = next((callback for callback in user_callbacks if isinstance(callback, Checkpoint)), None)
        if not self.has_run:
            settings.setdefault("enable_checkpointing", False)
        saves = settings.get("enable_checkpointing") is not False and self.has_run
        saves = saves and (checkpoint is not None or own is None)
        checkpoint = checkpoint or own or Checkpoint()
        checkpoint.config = config
        self._checkpoint = checkpoint
        self.keep_facts = KeepFacts()
        callbacks = arrange_callbacks(
            user_callbacks,
            self.keep_facts,
            checkpoint,
            record=self._record if self.has_run else None,
            saves=saves,
            shows_progress=settings.get("enable_progress_bar") is not False,
        )
        plugins = as_list(settings.pop("plugins", None))
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(AtomicCheckpointIO())
        settings = {"logger": False, "enable_model_summary": False} | settings
        if settings.get("profiler") is None and not settings.get("barebones"):
            settings["profiler"] = Timing()
        super().__init__(**settings, callbacks=callbacks, plugins=plugins)
        if not self.barebones and all(isinstance(logger, DummyLogger) for logger in self.loggers):
            self.loggers = [KeepsNothing(Path(self.default_root_dir))]  # until there is a run, see _open_run
        shorten_steps(self, quiet_profilers=(Timing,))
        keep_loaders(self)
        keep_plain_hyperparameters(self)

    def use_configuration(self, config: str, values: dict[str, Any]) -> None:
        """Replaces the configuration of the run before it starts; arguments as for the constructor."""
        self.config = self._record.config = self._checkpoint.config = config
        self._record.values = values

    @property
    def checkpoint_callback(self) -> LightningCheckpoint | None:
        """The one that saves best.ckpt and last.ckpt, whatever other checkpoints the user has saved as well."""
        own = (callback for callback in self.checkpoint_callbacks if isinstance(callback, Checkpoint))
        return next(own, super().checkpoint_callback)

    @property
    def progress_bar_callback(self) -> ProgressBar | None:
        """The one that shows something: a module's own, which comes last, takes the place of ours."""
        bars = [callback for callback in self.callbacks if isinstance(callback, ProgressBar)]  # type: ignore[attr-defined]  # set by a connector
        return bars[-1] if bars else None

    @property
    def default_root_dir(self) -> str:
        """The run directory, where there is one."""
        return super().default_root_dir if self.run is None else str(self.run)

    def fit(
        self,
        model: pl.LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = True,
        init_from: str | Path | None = None,
    ) -> None:
        """Trains a model; `test(ckpt_path="best")` tests its best checkpoint afterwards.

        Args:
            model: model to train.
            train_dataloaders: batches to train on, instead of a data module.
            val_dataloaders: batches to validate on, instead of a data module.
            datamodule: the data.
            ckpt_path: run to resume: last, best, a run directory or a checkpoint file.
            weights_only: always True; loading a checkpoint never runs code.
            init_from: initial weights of a new run: a checkpoint, or a file with only weights.
        """
        self.keep_facts.init_from = None if init_from is None else Path(init_from)
        self._open_run(model)
        self.continues = self._resolved(ckpt_path)
        self._give_facts(model if self.continues else None, datamodule, self.continues)
        if not self.continues:
            self.keep_facts.inherit(datamodule)
        try:
            super().fit(model, train_dataloaders, val_dataloaders, datamodule, self.continues, weights_only=True)
            self.endings = endings(self, self.config)
            self.speed = measured(self)
            if self.run is not None and self._from_python:
                self._conclude(model, {})
        except Stopped as stop:
            if not self._from_python:
                raise
            raise (KeyboardInterrupt if stop.number == signal.SIGINT else SystemExit(stop.exit_code)) from stop
        finally:
            if isinstance(profiler := getattr(self, "profiler", None), Timing):  # set by a connector
                profiler.close()
            if self._from_python and self.run is not None:
                self.run.release()

    def _open_run(self, model: pl.LightningModule) -> None:
        """Makes the run directory, and has the run's own files written to it."""
        if not self.has_run:
            return
        if self._from_python:
            nets = networks(model)
            name = type(nets[0] if len(nets) == 1 else model).__name__
            self.run = self.run or self._make_run(name)
            self.run.create()
        assert self.run is not None
        self._record.run = self.run
        if isinstance(self.checkpoint_callback, Checkpoint):
            self.checkpoint_callback.folder = self.run.checkpoints
        if not any(isinstance(logger, MetricsCSV) for logger in self.loggers):
            loggers = [logger for logger in self.loggers if not isinstance(logger, KeepsNothing)]
            self.loggers = [*loggers, MetricsCSV(self.run.metrics_csv, is_alone=not loggers)]

    def _make_run(self, name: str) -> Run:
        """The directory that was asked for, else a dated one, which processes that Lightning starts share."""
        if self._folder is None and is_started_by_lightning() and "PLAYBOOK_RUN_DIR" in os.environ:
            return Run(Path(os.environ["PLAYBOOK_RUN_DIR"]))
        run = Run(self._folder) if self._folder else new_run(name, self._root)
        if self.num_devices > 1:
            os.environ["PLAYBOOK_RUN_DIR"] = str(run)
        return run

    def _resolved(self, ckpt_path: str | Path | None) -> str | None:
        """The file of last, best or a run directory; names that Lightning resolves itself are not changed."""
        if ckpt_path is None or is_checkpoint(Path(ckpt_path)) or (self.run is None and ckpt_path in ("best", "last")):
            return ckpt_path and str(ckpt_path)
        candidates = checkpoint_candidates(str(ckpt_path), self.run, None, "ckpt_path")
        return str(first_valid(candidates, f"ckpt_path {ckpt_path}"))

    def _give_facts(self, model: Any, datamodule: Any, path: str | None) -> None:
        """What a checkpoint, or else the model, knows of its data; the command line has given it already."""
        if self._from_python:
            self.keep_facts.give(model, datamodule, opened(path))

    def test_best(self, model: pl.LightningModule, datamodule: pl.LightningDataModule | None) -> None:
        """After `fit`: tests the best checkpoint, or the last if there is no best, and prints the summary.

        Args:
            model: that was trained.
            datamodule: its data.
        """
        assert self.run is not None
        for logger in self.loggers:
            if isinstance(logger, MetricsCSV):  # a continued run may have nothing left to train but its test
                logger.continue_from(self.global_step)
        best = self.strategy.broadcast(self._best_checkpoint())  # the others may not know the directory
        results: dict[str, float] = {}
        if _has_test(model, datamodule):
            with repeatable():  # as the verb `test` draws
                measured = super().test(model, datamodule=datamodule, ckpt_path=best, weights_only=True, verbose=False)
            results = _merged(measured)
        self._conclude(model, results)

    def _conclude(self, model: pl.LightningModule, results: dict[str, float]) -> None:
        """Notes that the run is finished, and prints the summary."""
        assert self.run is not None
        failure = getattr(self.checkpoint_callback, "failure", None)
        if self.is_global_zero:
            status = "finished" if failure is None else "unsaved"
            self.run.update_metrics(
                status=status, ended=plain(self.endings), speed=self.speed or None, test=results or None
            )
            print(card.summary(self, model, results))
        if failure is not None:
            rest = "free some space and resume" if self._best_checkpoint() else "no checkpoint could be saved"
            raise UserError(f"--run_dir {self.run}: {failure.strerror}: the latest state was not saved; {rest}")
        self._tell_callbacks(model)

    def _tell_callbacks(self, model: pl.LightningModule | None) -> None:
        """Calls `on_run_concluded` of the callbacks that have it: the run's own files say all by now."""
        for callback in self.callbacks:  # type: ignore[attr-defined]  # set by a connector
            if callable(own := getattr(callback, "on_run_concluded", None)):
                own(self, model)

    @property
    def should_stop(self) -> bool:
        """Whether the training is to end before its limits; where that was set first is `stopped_at`."""
        return self._should_stop

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if value and not self._should_stop:
            self.stopped_at = source_line(sys._getframe(1))
        self._should_stop = value

    def validate(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = False,
        datamodule: pl.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Evaluates a model on the validation data.

        Args:
            model: model to evaluate.
            dataloaders: batches, instead of a data module.
            ckpt_path: weights to load first: best, last, a run directory or a checkpoint file.
            verbose: whether to print Lightning's table as well.
            datamodule: the data.
            weights_only: always True; loading a checkpoint never runs code.
        """
        path = self._resolved(ckpt_path)
        self._give_facts(model or self.lightning_module, datamodule, path)
        with self._reachable_loaders("validate", model, dataloaders, datamodule):
            results = super().validate(model, dataloaders, path, verbose, datamodule, weights_only=True)
        self._report("val", results)
        return results

    def test(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = False,
        datamodule: pl.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Evaluates a model on the test data; arguments as for validate."""
        path = self._resolved(ckpt_path)
        self._give_facts(model or self.lightning_module, datamodule, path)
        with self._reachable_loaders("test", model, dataloaders, datamodule), self._repeatable():
            results = super().test(model, dataloaders, path, verbose, datamodule, weights_only=True)
        self._report("test", results)
        if self.run is not None:
            self._tell_callbacks(model or self.lightning_module)
        return results

    def predict(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        datamodule: pl.LightningDataModule | None = None,
        return_predictions: bool | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Returns the model's predictions, batch by batch.

        Args:
            model: model to use.
            dataloaders: batches, instead of a data module.
            datamodule: the data, with its predict loader, which is by default the test loader.
            return_predictions: False passes them only to callbacks.
            ckpt_path: weights to load first: best, last, a run directory or a checkpoint file.
            weights_only: always True; loading a checkpoint never runs code.
        """
        path = self._resolved(ckpt_path)
        self._give_facts(model or self.lightning_module, datamodule, path)
        with self._reachable_loaders("predict", model, dataloaders, datamodule):
            outputs = super().predict(model, dataloaders, datamodule, return_predictions, path, weights_only=True)
        for writer in self.callbacks:  # type: ignore[attr-defined]  # set by a connector
            if isinstance(writer, WritePredictions) and self.is_global_zero:
                writer.tell()
        return outputs

    def _reachable_loaders(self, stage: str, model: Any, loaders: Any, datamodule: Any) -> AbstractContextManager[None]:
        model = model or self.lightning_module
        return nullcontext() if model is None else reachable_loaders(self, model, datamodule, stage, loaders is None)

    def _repeatable(self) -> AbstractContextManager[None]:
        """For the verb `test`; from Python, who tests twice may want other draws."""
        return nullcontext() if self._from_python else repeatable()

    def _best_checkpoint(self) -> str | None:
        assert self.run is not None
        names = [self.run.checkpoints / name for name in ("best.ckpt", "last.ckpt")]
        uses_best = isinstance(self.checkpoint_callback, Checkpoint) and bool(self.checkpoint_callback.best)
        existing = [path for path in names[0 if uses_best else 1 :] if is_checkpoint(path)]
        return str(existing[0]) if existing else None

    def _report(self, stage: str, results: Any) -> None:
        if stage == "test" and self.test_dataloaders == []:  # after a training, that is no mistake
            raise no_loader(getattr(self, "datamodule", None) or self.lightning_module, "test_dataloader")
        if self.run is None or not self.is_global_zero:
            return
        merged = _merged(results)
        self.run.create()
        facts = self.run.read_metrics().get("facts") or abridged(self.keep_facts.facts)  # those of its training
        self.run.update_metrics(**{stage: merged}, facts=facts)
        print("  ".join(f"{name} {value:.4g}" for name, value in merged.items()) or f"{stage}: nothing was logged")


def as_list(value: Any) -> list[Any]:
    """One thing, several or none, as a list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _has_test(model: pl.LightningModule, datamodule: pl.LightningDataModule | None) -> bool:
    sources = [source for source in (model, datamodule) if source is not None]
    if getattr(datamodule, "test_set", ...) is None:
        return False
    return is_overridden("test_step", model) and any(is_overridden("test_dataloader", source) for source in sources)


def _merged(results: Any) -> dict[str, float]:
    return {name: float(value) for loader in results or [] for name, value in loader.items()}


def _look_for_gpus_once() -> None:
    """Spares each optimizer step a look for a GPU where there is none: 0.2 ms, as Lightning has torch ask NVML."""
    if not torch.cuda.is_available():
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


def _check_limits(settings: dict[str, Any]) -> None:
    """Lightning stops at the maximum, whatever the minimum is.

    Raises:
        ValueError: if fewer epochs or steps are allowed than are asked for at least.
    """
    for unit in ("epochs", "steps"):
        least, most = settings.get(f"min_{unit}"), settings.get(f"max_{unit}")
        if least is not None and most is not None and 0 <= most < least:
            raise ValueError(
                f"--trainer.min_{unit}: expected at most --trainer.max_{unit}, which is {most}, got {least}"
            )
