"""Lightning's Trainer with Playbook's callbacks and run directory, for the command line and Python."""

import os
import signal
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.utilities.model_helpers import is_overridden

from playbook.checkpoints.io import AtomicCheckpointIO, first_valid
from playbook.errors import Stopped, UserError
from playbook.facts import abridged
from playbook.network import networks
from playbook.processes import is_started_by_lightning
from playbook.runs import card
from playbook.runs.directory import ROOT, Run, checkpoint_candidates, is_checkpoint, new_run
from playbook.runs.loggers import MetricsCSV
from playbook.runs.predictions import WritePredictions
from playbook.training.facts import KeepFacts, opened
from playbook.training.loaders import keep_loaders
from playbook.training.microbatches import MicroBatches
from playbook.training.monitors import CheckMonitors
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.progress import Progress
from playbook.training.quiet import quiet_loggers, quiet_warnings
from playbook.training.record import Record
from playbook.training.resume.changes import Changes
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.exact import ExactResume
from playbook.training.resume.signals import StopOnSignal


class Trainer(pl.Trainer):
    """Lightning's Trainer, plus a run directory, exact resume, the test at the end and a summary.

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
        self.run = run
        self.config = config
        self.has_run = run is not None or (run_dir is not False and not settings.get("fast_dev_run"))
        self._folder = Path(run_dir) if run_dir else None
        self._root = Path(settings.get("default_root_dir") or ".") / ROOT
        self.continues: str | None = None  # the checkpoint that this process found; Checkpoint compares them
        self._from_python = run is None
        self._record = Record(run or Run(Path()), config, values or {})
        # order matters: ours that reset randomness come before the user's, Lightning puts checkpoints last
        user_callbacks = as_list(settings.pop("callbacks", None))
        own = next((callback for callback in user_callbacks if isinstance(callback, Checkpoint)), None)
        if not self.has_run:
            settings.setdefault("enable_checkpointing", False)
        saves = settings.get("enable_checkpointing") is not False and self.has_run
        saves = saves and (checkpoint is not None or own is None)
        checkpoint = checkpoint or own or Checkpoint()
        checkpoint.config = config
        self.keep_facts = KeepFacts()
        own_first = [self.keep_facts, ExactResume(checkpoint), Changes(config), MicroBatches(), CheckMonitors()]
        callbacks: list[Any] = [*own_first, *user_callbacks]
        if not any(isinstance(callback, NonFinite) for callback in callbacks):
            callbacks.append(NonFinite())
        has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
        if settings.get("enable_progress_bar") is not False and not has_bar:
            callbacks.append(Progress())
        if self.has_run:
            callbacks += [self._record, StopOnSignal(checkpoint)]
        if saves:
            callbacks.append(checkpoint)
        plugins = as_list(settings.pop("plugins", None))
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(AtomicCheckpointIO())
        settings = {"logger": False, "enable_model_summary": False} | settings
        super().__init__(**settings, callbacks=callbacks, plugins=plugins)
        keep_loaders(self)

    @property
    def checkpoint_callback(self) -> LightningCheckpoint | None:
        """The one that saves best.ckpt and last.ckpt, whatever other checkpoints the user has saved as well."""
        own = (callback for callback in self.checkpoint_callbacks if isinstance(callback, Checkpoint))
        return next(own, super().checkpoint_callback)

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
        """Trains a model, then tests its best checkpoint.

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
            if self.run is not None:
                self._test_best(model, datamodule)
        except Stopped as stop:
            if not self._from_python:
                raise
            raise (KeyboardInterrupt if stop.number == signal.SIGINT else SystemExit(stop.exit_code)) from stop
        finally:
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
            self.loggers = [*self.loggers, MetricsCSV(self.run.metrics_csv)]

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

    def _test_best(self, model: pl.LightningModule, datamodule: pl.LightningDataModule | None) -> None:
        assert self.run is not None
        for logger in self.loggers:
            if isinstance(logger, MetricsCSV):  # a continued run may have nothing left to train but its test
                logger.continue_from(self.global_step)
        best = self.strategy.broadcast(self._best_checkpoint())  # the others may not know the directory
        results: dict[str, float] = {}
        if _has_test(model, datamodule):
            measured = super().test(model, datamodule=datamodule, ckpt_path=best, weights_only=True, verbose=False)
            results = _merged(measured)
        failure = getattr(self.checkpoint_callback, "failure", None)
        if self.is_global_zero:
            self.run.update_metrics(status="finished" if failure is None else "unsaved", test=results or None)
            print(card.summary(self, model, results))
        if failure is not None:
            rest = "free some space and resume" if best else "no checkpoint could be saved"
            raise UserError(f"--run_dir {self.run}: {failure.strerror}: the latest state was not saved; {rest}")

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
        results = super().test(model, dataloaders, path, verbose, datamodule, weights_only=True)
        self._report("test", results)
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
        outputs = super().predict(model, dataloaders, datamodule, return_predictions, path, weights_only=True)
        for writer in self.callbacks:  # type: ignore[attr-defined]  # set by a connector
            if isinstance(writer, WritePredictions) and self.is_global_zero:
                writer.tell()
        return outputs

    def write_predictions(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None,
        checkpoint: Path | None,
        writer: WritePredictions,
    ) -> None:
        """Writes predictions with a writer, and prints the names of its files.

        Args:
            model: model to use.
            datamodule: the data; None if the model has its own.
            checkpoint: weights to load first.
            writer: writes the table; rows of an interrupted call are kept.
        """
        writer.facts = self.keep_facts.facts
        done = writer.resume()
        data: Any = getattr(datamodule, "data", datamodule)  # behind `--input`
        if isinstance(getattr(data, "predicted", None), set):
            data.predicted = done
        elif done:
            writer.discard()
            done = set()
        if done and self.is_global_zero:
            print(f"continuing after {len(done):,} rows", flush=True)
        if done and len(done) == len(getattr(datamodule, "sources", ())):  # a kill while the table was made
            writer.tell()
        else:
            self.callbacks.append(writer)  # type: ignore[attr-defined]  # set by a connector
            self.predict(model, None, datamodule, False, checkpoint)
        if self.is_global_zero and (skipped := getattr(data, "skipped_samples", None)):
            plural = "s" if len(skipped) > 1 else ""
            print(f"skipped  {len(skipped):,} sample{plural} that could not be read")

    def _best_checkpoint(self) -> str | None:
        assert self.run is not None
        names = [self.run.checkpoints / name for name in ("best.ckpt", "last.ckpt")]
        uses_best = isinstance(self.checkpoint_callback, Checkpoint) and bool(self.checkpoint_callback.best)
        existing = [path for path in names[0 if uses_best else 1 :] if is_checkpoint(path)]
        return str(existing[0]) if existing else None

    def _report(self, stage: str, results: Any) -> None:
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
