"""The verbs that need a model: every public method here that takes one is a verb of the command line."""

from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from playbook.checkpoints.io import describe, load, misfits, weights_of
from playbook.deploy import export
from playbook.doctor import written_tests
from playbook.doctor.command import examine
from playbook.doctor.options import select_ids
from playbook.doctor.report import Report
from playbook.errors import UserError
from playbook.insight import finders
from playbook.insight.sweeps import Sweep, Trial, report, write_trials
from playbook.runs import card
from playbook.runs.directory import Run, is_checkpoint
from playbook.runs.loggers import MetricsCSV
from playbook.runs.predictions import WritePredictions
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.review import review_errors


class Trainer(pl.Trainer):
    """Lightning's Trainer, plus what belongs to a run: its directory, the test at the end, what is printed."""

    run: Run | None = None  # set by the command line; without it, as in a notebook, this is Lightning's Trainer
    report: Report | None = None  # of the last review
    continues: str | None = None  # the checkpoint that this process found; Checkpoint compares it with the others'

    def fit(
        self,
        model: pl.LightningModule,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: pl.LightningDataModule | None = None,
        ckpt_path: str | None = None,
        weights_only: bool | None = True,
        init_from: str | None = None,
    ) -> None:
        """Train a model, then test its best checkpoint.

        Args:
            model: what is trained.
            train_dataloaders: for use from Python.
            val_dataloaders: for use from Python.
            datamodule: the data.
            ckpt_path: continue this run: last, best, a run directory or a checkpoint file.
            weights_only: always True; nothing in a checkpoint can run.
            init_from: start anew from these weights: best, last, a run directory, a checkpoint or a state dict.
        """
        if init_from is not None:
            load_weights(model, Path(init_from))
        self.continues = ckpt_path
        super().fit(model, train_dataloaders, val_dataloaders, datamodule, ckpt_path, weights_only=True)
        if self.run is None:
            return
        for logger in self.loggers:
            if isinstance(logger, MetricsCSV):  # a continued run may have nothing left to train but its test
                logger.continue_from(self.global_step)
        best = self.strategy.broadcast(self._best_checkpoint())  # the others may not know the directory
        results: dict[str, float] = {}
        if _has_test(model, datamodule):
            found = super().test(model, datamodule=datamodule, ckpt_path=best, weights_only=True, verbose=False)
            results = _merged(found)
        failure = getattr(self.checkpoint_callback, "failure", None)
        if self.is_global_zero:
            self.run.update_metrics(status="finished" if failure is None else "unsaved", test=results or None)
            print(card.summary(self, model, results))
        if failure is not None:
            kept = "free some space and continue" if best else "no checkpoint could be saved"
            raise UserError(f"--run_dir {self.run}: {failure.strerror}: the newest state is not saved; {kept}")

    def validate(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | None = None,
        verbose: bool = False,
        datamodule: pl.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Measure a checkpoint on the validation data.

        Args:
            model: what is measured.
            dataloaders: for use from Python.
            datamodule: the data.
            ckpt_path: best, last, a run directory or a checkpoint file; nothing else is needed.
            verbose: print Lightning's table as well.
            weights_only: always True; nothing in a checkpoint can run.
        """
        results = super().validate(model, dataloaders, ckpt_path, verbose, datamodule, weights_only=True)
        self._report("validate", results)
        return results

    def test(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        ckpt_path: str | None = None,
        verbose: bool = False,
        datamodule: pl.LightningDataModule | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Measure a checkpoint on the test data.

        Args:
            model: what is measured.
            dataloaders: for use from Python.
            datamodule: the data.
            ckpt_path: best, last, a run directory or a checkpoint file; nothing else is needed.
            verbose: print Lightning's table as well.
            weights_only: always True; nothing in a checkpoint can run.
        """
        results = super().test(model, dataloaders, ckpt_path, verbose, datamodule, weights_only=True)
        self._report("test", results)
        return results

    def predict(
        self,
        model: pl.LightningModule | None = None,
        dataloaders: Any = None,
        datamodule: pl.LightningDataModule | None = None,
        return_predictions: bool | None = None,
        ckpt_path: str | None = None,
        weights_only: bool | None = True,
    ) -> Any:
        """Write a table of predictions: ids, labels, probabilities.

        Args:
            model: what predicts.
            dataloaders: for use from Python.
            datamodule: the data; its predict loader, which is the test loader unless it says otherwise.
            return_predictions: for use from Python.
            ckpt_path: best, last, a run directory or a checkpoint file; nothing else is needed.
            weights_only: always True; nothing in a checkpoint can run.
        """
        keep = return_predictions if self.run is None else False
        outputs = super().predict(model, dataloaders, datamodule, keep, ckpt_path, weights_only=True)
        for writer in self.callbacks:  # type: ignore[attr-defined]  # set by a connector
            if isinstance(writer, WritePredictions) and self.is_global_zero:
                if not writer.files:
                    raise UserError("model: predict_step returned nothing to write")
                print("\n".join(f"predictions  {file.as_posix()}" for file in writer.files))
        return outputs

    def find_lr(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        min_lr: float = 1e-6,
        max_lr: float = 1.0,
        num_steps: int = 100,
        ckpt_path: str | None = None,
    ) -> Sweep:
        """Suggest a learning rate, from a short training during which it rises.

        Args:
            model: what is trained, on a copy.
            datamodule: the data.
            min_lr: first learning rate, above 0.
            max_lr: last learning rate; the sweep ends before it if the loss diverges.
            num_steps: optimizer steps, at least 10; a longer sweep suggests a lower rate.
            ckpt_path: weights to start from: best, last, a run directory or a checkpoint file; fresh ones if left out.
        """
        if ckpt_path is not None:
            load_weights(model, Path(ckpt_path))
        sweep = finders.find_lr(self, model, datamodule, min_lr, max_lr, num_steps)
        if self.run is not None and self.is_global_zero:
            self.run.create()
            sweep.write(self.run.path)
            print(f"{sweep.verdict(finders.rate_option(model))}\n{self.run}/find_lr.png, find_lr.csv")
        return sweep

    def find_batch_size(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        max_batch_size: int = 4096,
        steps_per_trial: int = 10,
        ckpt_path: str | None = None,
    ) -> list[Trial]:
        """Suggest a batch size: doubled while it fits, the fastest wins.

        Args:
            model: what is trained, on a copy.
            datamodule: the data, whose own batch size is the first.
            max_batch_size: largest batch size that is tried.
            steps_per_trial: training steps at each size, at least 3; the first two are not timed.
            ckpt_path: weights to start from: best, last, a run directory or a checkpoint file; fresh ones if left out.
        """
        if ckpt_path is not None:
            load_weights(model, Path(ckpt_path))
        trials = finders.find_batch_size(self, model, datamodule, max_batch_size, steps_per_trial)
        if self.run is not None:
            self.run.create()
            write_trials(self.run.path, trials)
            print(report(trials))
        return trials

    def doctor(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        only: str | None = None,
        skip: str | None = None,
        severity: Literal["critical", "warning", "advice"] = "advice",
        format: Literal["terminal", "json", "markdown", "sarif"] = "terminal",
        write_tests: str | None = None,
        thresholds: dict[str, float] | None = None,
        ckpt_path: str | None = None,
    ) -> Report:
        """Review a model and its data by running them, as an expert would.

        Args:
            model: what is reviewed; it stays as it is.
            datamodule: the data.
            only: ids of the defects to look for, with commas between them.
            skip: ids of those to leave out, likewise.
            severity: the least that is reported: critical, warning or advice.
            format: of the report: terminal, json, markdown or sarif.
            write_tests: file for tests that assert what the review has verified.
            thresholds: of probes, as {dead_units.most: 0.7}.
            ckpt_path: review this run's configuration: best, last, a run directory or a checkpoint file.
        """
        if ckpt_path is not None:
            load(Path(ckpt_path))  # its configuration is all that counts, but the file must be sound
        with review_errors():
            if write_tests is not None:
                written_tests.require_new(Path(write_tests))
            self.report = examine(self, model, datamodule, select_ids(only, skip, severity), thresholds)
        return self.report

    def export(
        self,
        model: pl.LightningModule,
        datamodule: pl.LightningDataModule | None = None,
        output: str | None = None,
        ckpt_path: str | None = None,
    ) -> Path:
        """Write a checkpoint as one file for use elsewhere.

        Args:
            model: what the checkpoint is of.
            datamodule: for the command line; no data is needed.
            output: name of the file, whose end is the format: .safetensors for the weights alone, .ckpt for everything
                in one plain file; <run>/exports/<checkpoint>.safetensors when left out.
            ckpt_path: best, last, a run directory or a checkpoint; nothing else is needed.
        """
        if ckpt_path is None:
            raise UserError("ckpt_path: expected a checkpoint, got none")
        checkpoint, folder = Path(ckpt_path), self.run.path if self.run is not None else Path()
        file = Path(output) if output else folder / "exports" / f"{checkpoint.stem}.safetensors"
        export.export(model, checkpoint, file)
        print(f"exported  {file.as_posix()} ({file.stat().st_size / 2**20:.1f} MiB)")
        return file

    def _best_checkpoint(self) -> str | None:
        assert self.run is not None
        names = [self.run.checkpoints / name for name in ("best.ckpt", "last.ckpt")]
        uses_best = isinstance(self.checkpoint_callback, Checkpoint) and bool(self.checkpoint_callback.best)
        existing = [path for path in names[0 if uses_best else 1 :] if is_checkpoint(path)]
        return str(existing[0]) if existing else None

    def _report(self, verb: str, results: Any) -> None:
        if self.run is None or not self.is_global_zero:
            return
        merged = _merged(results)
        self.run.create()
        self.run.update_metrics(**{"val" if verb == "validate" else verb: merged})
        print("  ".join(f"{name} {value:.4g}" for name, value in merged.items()) or f"{verb}: nothing was logged")


def load_weights(model: pl.LightningModule, path: Path) -> None:
    """Copies the weights that fit, by name and shape, and says which did not.

    Raises:
        UserError: none fits.
    """
    weights = weights_of(load(path), path)
    own = model.state_dict()
    net_alone = {f"net.{name}": value for name, value in weights.items()}  # a state dict of the bare net
    if not weights.keys() & own.keys() and net_alone.keys() & own.keys():
        weights = net_alone
    found = misfits(own, weights)
    fitting = {name: value for name, value in weights.items() if name in own and value.shape == own[name].shape}
    if not fitting:
        raise UserError(f"--init_from {path.as_posix()}: no weight fits this model: {describe(found)}")
    model.load_state_dict(fitting, strict=False)
    print(f"init_from {path.as_posix()}: {len(fitting)} of {len(own)} entries taken", flush=True)
    for kind, names in found.items():
        print("".join(f"  {kind:<11} {name}\n" for name in names), end="", flush=True)


def _has_test(model: pl.LightningModule, datamodule: pl.LightningDataModule | None) -> bool:
    sources = [source for source in (model, datamodule) if source is not None]
    if getattr(datamodule, "test_set", ...) is None:
        return False
    return is_overridden("test_step", model) and any(is_overridden("test_dataloader", source) for source in sources)


def _merged(results: Any) -> dict[str, float]:
    return {name: float(value) for loader in results or [] for name, value in loader.items()}
