"""What metrics.json says of a run at every moment, and over interruptions."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import yaml
from torch import Tensor

from playbook.errors import Stopped
from playbook.runs.directory import Run
from playbook.runs.loggers import MetricsCSV
from playbook.testing.command import QUIET, Cli
from playbook.testing.line import Line, Points, points
from playbook.testing.processes import values_logged
from playbook.training.record import Record
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.trainer import Trainer
from running import CNN_DIGITS


class Acts(Line):
    """Does something at a step, counted from 0."""

    def __init__(self, step: int, act: Callable[[], Any]) -> None:
        super().__init__()
        self.step, self.act = step, act

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.global_step == self.step:
            self.act()
        return super().training_step(batch, batch_idx)


def trainer_of(run: Run, epochs: int = 2) -> Trainer:
    run.create()
    checkpoint = Checkpoint("val/loss")
    config, values = "seed_everything: 1\n", {"seed_everything": 1}
    return Trainer(**QUIET, run=run, checkpoint=checkpoint, config=config, values=values, max_epochs=epochs)


def raises(error: BaseException) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


def test_running_then_finished(workdir: Path) -> None:
    run, seen = Run(Path("job")), []
    trainer, module = trainer_of(run), Acts(3, lambda: seen.append(run.read_metrics()))
    trainer.fit(module, datamodule=Points())
    trainer.test_best(module, Points())
    [during] = seen
    assert during["status"] == "running"
    assert (during["epoch"], during["step"]) == (1, 2), "as of the last epoch's end"
    assert during["limits"] == {"max_epochs": 2, "max_steps": -1}
    after = run.read_metrics()
    assert after["status"] == "finished"
    assert [ending["limit"] for ending in after["ended"]] == ["max_epochs"]
    assert (after["epoch"], after["step"]) == (2, 4)
    assert after["metrics"].keys() == {"train/loss", "val/loss"}
    assert after["test"].keys() == {"test/loss"}
    assert after["best"]["epoch"] == 2
    assert after["best"]["metrics"]["val/loss"] == after["metrics"]["val/loss"]
    assert after["train_seconds"] >= during["train_seconds"] > 0
    assert run.config.read_text() == "seed_everything: 1\n"
    assert (run.path / "environment.json").is_file()


@pytest.mark.parametrize(
    ("error", "leaves", "status"),
    [
        (Stopped(15), Stopped, "interrupted"),
        (KeyboardInterrupt(), SystemExit, "interrupted"),
        (RuntimeError("a bug"), RuntimeError, "failed"),
    ],
    ids=["signal", "ctrl-c", "error"],
)
@pytest.mark.filterwarnings("ignore:.*[Kk]eyboard.*")
def test_ending_early(workdir: Path, error: BaseException, leaves: type[BaseException], status: str) -> None:
    run = Run(Path("job"))
    with pytest.raises(leaves):
        trainer_of(run).fit(Acts(3, raises(error)), datamodule=Points())
    metrics = run.read_metrics()
    assert metrics["status"] == status
    assert (metrics["epoch"], metrics["step"]) == (1, 3)
    assert metrics["best"]["epoch"] == 1
    assert "test" not in metrics


@pytest.mark.slow
def test_seconds_add_up_over_a_continuation(workdir: Path) -> None:
    run = Run(Path("job"))
    trainer_of(run, epochs=1).fit(Acts(0, lambda: time.sleep(0.3)), datamodule=Points())
    first = run.read_metrics()["train_seconds"]
    assert first >= 0.3
    last = str(run.checkpoints / "last.ckpt")
    trainer_of(run).fit(Acts(2, lambda: time.sleep(0.3)), datamodule=Points(), ckpt_path=last)
    second = run.read_metrics()["train_seconds"]
    assert first + 0.3 <= second < first + 30
    assert run.read_metrics()["epoch"] == 2
    trainer_of(run).fit(Line(), datamodule=Points())
    assert run.read_metrics()["train_seconds"] < second, "a new start begins at 0"


def test_fresh_start_forgets_what_was(workdir: Path) -> None:
    run = Run(Path("job"))
    run.create()
    run.update_metrics(status="failed", leftover=1)
    trainer_of(run).fit(Line(), datamodule=Points())
    assert "leftover" not in run.read_metrics()


def test_validating_alone_records_nothing(workdir: Path) -> None:
    run = Run(Path("job"))
    run.path.mkdir()
    record = Record(run, "", {})
    pl.Trainer(**QUIET, callbacks=[record], enable_checkpointing=False).validate(Line(), Points(), verbose=False)
    assert list(run.path.iterdir()) == []


class Logs(Line):
    """Logs in every way that self.log has; one value at the first batch of an epoch alone."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("by step", 10.0 * self.current_epoch + batch_idx)
        self.log("both", float(batch_idx), on_step=True, on_epoch=True, batch_size=1)
        self.log("not for loggers", 1.0, logger=False)
        if batch_idx == 0:
            self.log("first batch", float(self.current_epoch))
        return loss


def column(run: str, name: str) -> list[tuple[str, str]]:
    """Steps and values of a metric."""
    return [(row["step"], row[name]) for row in MetricsCSV(Path(run, "metrics.csv")).read() if row.get(name)]


def fit_logs(run: str, every: int) -> None:
    settings: dict[str, Any] = {**QUIET, "log_every_n_steps": every, "max_epochs": 2}
    Trainer(**settings, run_dir=Path(run)).fit(Logs(), datamodule=Points())


def test_short_epochs_reach_the_loggers(workdir: Path) -> None:
    """Lightning-AI/pytorch-lightning#3793: with 2 batches an epoch, every 50th step is none of them."""
    fit_logs("run", every=50)
    assert column("run", "by step") == [("1", "1"), ("3", "11")], "the newest value of each epoch, at its last step"
    assert column("run", "both_step") == [("1", "1"), ("3", "1")]
    assert column("run", "both_epoch") == [("1", "0.5"), ("3", "0.5")]
    assert column("run", "first batch") == [("1", "0"), ("3", "1")]
    assert column("run", "not for loggers") == []


def test_what_was_logged_is_not_logged_twice(workdir: Path) -> None:
    fit_logs("run", every=1)
    assert column("run", "by step") == [("0", "0"), ("1", "1"), ("2", "10"), ("3", "11")]
    fit_logs("every other", every=2)
    assert column("every other", "by step") == [("1", "1"), ("3", "11")]


def test_no_step_is_logged_where_none_is_asked_for(workdir: Path) -> None:
    fit_logs("run", every=0)
    assert column("run", "by step") == []


def test_a_run_that_is_continued_amid_an_epoch_logs_the_same(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")

    class Stops(Logs):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if self.global_step == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().training_step(batch, batch_idx)

    class Late(Points):
        def train_dataloader(self) -> Any:
            return points(16)

    def fit(run: str, module: Any, **options: Any) -> None:
        settings: dict[str, Any] = {**QUIET, "max_epochs": 1}
        torch.manual_seed(1)
        module.net.reset_parameters()
        trainer = Trainer(**settings, run_dir=Path(run))
        trainer.fit(module, datamodule=Late(), **options)

    fit("whole", Logs())
    with pytest.raises(SystemExit):
        fit("cut", Stops())
    fit("cut", Logs(), ckpt_path="last")
    assert values_logged(Path("cut")) == values_logged(Path("whole"))
    assert column("cut", "first batch") == [("3", "0")]


def test_attempt_to_continue_that_fails_leaves_the_results(cli: Cli) -> None:
    small = ("--trainer.limit_train_batches", "2", "--model.net.widths", "[4]")
    assert cli("fit", "--config", CNN_DIGITS, "--run_dir", "run", "--trainer.max_epochs", "1", *small).code == 0
    before = Run(Path("run")).read_metrics()
    other = ("--model.optimizer", "LBFGS", "--model.optimizer.lr", "1")
    assert cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2", *other).code == 2
    after = Run(Path("run")).read_metrics()
    assert {name: after[name] for name in ("epoch", "step", "best")} == {
        name: before[name] for name in ("epoch", "step", "best")
    }
    assert after["train_seconds"] >= before["train_seconds"]


def test_attempt_to_continue_that_fails_leaves_the_configuration(cli: Cli) -> None:
    small = ("--trainer.limit_train_batches", "2", "--model.net.widths", "[4]")
    assert cli("fit", "--config", CNN_DIGITS, "--run_dir", "run", "--trainer.max_epochs", "1", *small).code == 0
    other = ("--model.optimizer", "LBFGS", "--model.optimizer.lr", "1")
    assert cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2", *other).code == 2
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["model"]["init_args"]["optimizer"]["class_path"] == "torch.optim.AdamW"
