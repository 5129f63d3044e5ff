"""A bar on a terminal; a line now and then when piped."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ProgressBar
from torch import Tensor

from playbook.errors import UserError
from playbook.runs.directory import Run
from playbook.testing.command import QUIET
from playbook.testing.line import Line, line, points
from playbook.training import progress
from playbook.training.progress import Progress
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.trainer import Trainer

SETTINGS: dict[str, Any] = {**QUIET, "enable_progress_bar": True, "run_dir": False}


def train(module: pl.LightningModule, *callbacks: pl.Callback, **settings: Any) -> Trainer:
    settings = {**SETTINGS, "enable_checkpointing": any(isinstance(c, Checkpoint) for c in callbacks), **settings}
    trainer = Trainer(**settings, callbacks=[Progress(), *callbacks])
    trainer.fit(module, points(), points())
    return trainer


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows everything that may be shown."""
    monkeypatch.setattr(progress, "PIPED_EVERY_S", 0.0)
    monkeypatch.setattr(progress, "SHOWN_EVERY_S", 0.0)


def test_piped_training_prints_the_last_epoch(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fifty epochs in far less than five seconds each: a line every few seconds at most, and the last."""
    trainer = train(line(), max_epochs=50)
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) < 10
    assert lines[-1].startswith("epoch 50/50  ")
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert f"train/loss {metrics['train/loss']:.4g}" in lines[-1]
    assert f"val/loss {metrics['val/loss']:.4g}" in lines[-1]
    assert re.search(r"  [\d.]+ it/s  ", lines[-1])
    assert "\x1b" not in lines[-1]


def test_piped_line_every_so_often(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    train(line(lr=0.5), Checkpoint("val/loss"), max_epochs=3)
    lines = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in lines] == ["1/3", "2/3", "3/3"]
    assert all(re.search(r"best \S+ \(epoch \d\)$", row) for row in lines)


def test_line_shows_the_training_loss_of_its_epoch(
    workdir: Path, often: None, capsys: pytest.CaptureFixture[str]
) -> None:
    class LogsAtEnd(Line):  # as tasks do
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self._error(batch)

        def on_train_epoch_end(self) -> None:
            self.log("train/loss", 10.0 + self.current_epoch)

    train(LogsAtEnd(), max_epochs=3)
    shown = re.findall(r"epoch (\d)/3 .* train/loss (\d+) ", capsys.readouterr().out)
    assert shown == [("1", "10"), ("2", "11"), ("3", "12")]


def test_best_is_shown_with_its_epoch(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Starting at the solution, every later epoch is no better than the first."""
    train(line(2.0, 1.0), Checkpoint("val/loss"), max_epochs=2)
    assert [row[-16:] for row in capsys.readouterr().out.splitlines()] == ["best 0 (epoch 1)"] * 2


@pytest.mark.parametrize("ending", ["max_steps", "should_stop"])
def test_piped_training_that_ends_otherwise(workdir: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Stops(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.should_stop = ending == "should_stop" and trainer.current_epoch == 1

    limits = {"max_epochs": -1, "max_steps": 4} if ending == "max_steps" else {"max_epochs": 9}
    train(line(), Stops(), **limits)
    assert capsys.readouterr().out.startswith("epoch 2")


def test_number_of_epochs_unknown(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    train(line(), max_epochs=-1, max_steps=2)
    assert capsys.readouterr().out.startswith("epoch 1  ")


def test_loss_of_a_module_that_logs_none(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss of the last step is shown, as a dict or as a tensor; a skipped step has none."""

    class Silent(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self._error(batch) * 0 + 0.125
            return [loss, {"loss": loss}][self.current_epoch]

    train(Silent(), max_epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("train/loss 0.125" in row for row in lines)


def test_at_most_five_metrics(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    class Talkative(Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log_dict({f"val/m{i}": float(i) for i in range(9)})

    train(Talkative(), max_epochs=1)
    assert re.findall(r"\S+/\S+ (?=\d)", capsys.readouterr().out.partition("it/s")[2]) == [
        "train/loss ", *(f"val/m{i} " for i in range(4))
    ]  # fmt: skip


def test_disabled(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress()
    bar.disable()
    Trainer(**SETTINGS, callbacks=[bar], enable_checkpointing=False, max_epochs=1).fit(line(), points(), points())
    assert capsys.readouterr().out == ""
    bar.enable()
    Trainer(**SETTINGS, callbacks=[bar], enable_checkpointing=False, max_epochs=1).fit(line(), points(), points())
    assert capsys.readouterr().out.startswith("epoch 1/1")


class Averages(Line):
    """A constant loss, with gradients."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._error(batch) * 0 + 0.125


@pytest.mark.parametrize("schedule", [None, {0: 1, 1: 2}])
def test_accumulation_shows_the_loss_of_the_batch(
    workdir: Path, often: None, schedule: dict[int, int] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lightning-AI/pytorch-lightning#2635: what Lightning hands on is divided by the accumulated batches."""
    callbacks = [GradientAccumulationScheduler(schedule)] if schedule else []
    settings: dict[str, Any] = {} if schedule else {"accumulate_grad_batches": 2}
    train(Averages(), *callbacks, max_epochs=2, **settings)
    assert re.findall(r"train/loss (\S+)", capsys.readouterr().out) == ["0.125", "0.125"]


class Prints(Line):
    """Uses the progress bar as user code may."""

    def use_bar(self) -> None:
        bar: Any = self.trainer.progress_bar_callback
        assert bar.trainer is self.trainer
        assert bar.is_enabled
        assert not bar.is_disabled
        assert bar.get_metrics(self.trainer, self) == dict(self.trainer.progress_bar_metrics)
        assert bar.total_train_batches == 2
        assert bar.total_val_batches == 2
        bar.disable()
        assert bar.is_disabled
        assert not bar.is_enabled
        bar.enable()
        bar.refresh_rate = 0
        assert bar.is_disabled
        bar.refresh_rate = 10
        bar.print("by the bar")
        self.print("by the module")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        bar: Any = self.trainer.progress_bar_callback
        assert bar.total_val_batches_current_dataloader == 2
        super().validation_step(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        self.use_bar()


def test_all_that_lightnings_bars_have(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Lightning-AI/pytorch-lightning#5275: self.print() asks the bar whether it is enabled."""
    train(Prints(), max_epochs=1)
    assert capsys.readouterr().out.splitlines()[:2] == ["by the bar", "by the module"]


def test_printing_on_a_terminal(workdir: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as written:
        train(Prints(), max_epochs=2)
    states = shown(written)
    assert states.count("by the module") == 2
    assert any(re.match(r"epoch 2/2 ━+ 2/2", state) for state in states), "enabled again, the bar comes back"


def test_metrics_for_the_bar_come_first_and_in_one_line(
    workdir: Path, often: None, capsys: pytest.CaptureFixture[str]
) -> None:
    class Asks(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.log("train\nscore", 0.5, prog_bar=True)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log_dict({f"val/m{i}": float(i) for i in range(9)}, prog_bar=True)

    train(Asks(), max_epochs=1)
    [line] = capsys.readouterr().out.splitlines()
    assert re.findall(r"(train score \S+|val/m\d)", line) == ["train score 0.5", *(f"val/m{i}" for i in range(9))]


def test_bar_of_the_module_takes_the_place_of_ours(
    workdir: Path, often: None, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(Line):
        def configure_callbacks(self) -> Any:
            return [Percent()]

        def on_train_end(self) -> None:
            assert type(self.trainer.progress_bar_callback) is Percent

    class Percent(ProgressBar):
        is_enabled = True

        def on_train_batch_end(self, *args: Any) -> None:
            print(f"{100 * (args[-1] + 1) / self.total_train_batches:.0f} percent")

    train(Own(), max_epochs=1)
    assert capsys.readouterr().out.splitlines() == ["50 percent", "100 percent"]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[bytearray]:
    """A pseudo-terminal as stdout; what is written to it is complete at the end of the block."""
    if not hasattr(os, "openpty"):
        pytest.skip("there are no pseudo-terminals here")
    reading, writing = os.openpty()
    written = bytearray()

    def read() -> None:
        with suppress(OSError):  # how Linux says that the other end is closed
            while chunk := os.read(reading, 4096):
                written.extend(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        with os.fdopen(writing, "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", "200")
            patch.delenv("NO_COLOR", raising=False)
            patch.setattr(sys, "stdout", stdout)
            yield written
    finally:
        thread.join(timeout=10)
        os.close(reading)


def shown(written: bytearray) -> list[str]:
    """The states of the bar, without its colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    return [row.strip() for row in re.split(r"[\r\n]+", plain) if row.strip()]


def test_bar_on_a_terminal(workdir: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as written:
        trainer = train(line(), Checkpoint("val/loss"), max_epochs=2)
    states = shown(written)
    assert any(re.match(r"epoch 1/2 [━╸╺]+ 1/2  [\d.]+ it/s  train/loss", state) for state in states), states
    last = states[-1]
    assert re.match(r"epoch 2/2 ━+ 2/2  ", last), last
    assert f"val/loss {float(trainer.callback_metrics['val/loss']):.4g}" in last
    assert re.search(r"  best \S+ \(epoch \d\)$", last), last
    assert written.count(b"\x1b[?25l") == written.count(b"\x1b[?25h") == 1, "the cursor is hidden, and comes back"


def test_bar_knows_the_best_of_this_validation(workdir: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as written:
        train(line(), Checkpoint("val/loss"), max_epochs=2)
    assert "best 0.9337 (epoch 2)" in shown(written)[-1]


def test_bar_is_taken_away_after_an_error(workdir: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Buggy(Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if not self.trainer.sanity_checking:
                raise RuntimeError("a bug in my own code")

    with terminal(monkeypatch) as written, pytest.raises(RuntimeError, match="a bug"):
        train(Buggy(), max_epochs=2)
    assert written.count(b"\x1b[?25l") == written.count(b"\x1b[?25h") == 1, "the cursor stays hidden"


def test_bar_of_an_endless_loader(workdir: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter([(torch.ones(1), torch.ones(1))] * 3)

    module = Line()
    module.validation_step = None  # type: ignore[assignment]
    settings: dict[str, Any] = {**SETTINGS, "enable_checkpointing": False, "max_epochs": 1}
    with terminal(monkeypatch) as written:
        Trainer(**settings, callbacks=[Progress()]).fit(module, DataLoader(Stream(), batch_size=1))
    states = shown(written)
    assert any(re.search(r"epoch 1/1 \S* ?3/inf  ", state) for state in states), states


def test_header_comes_first_where_there_is_a_run(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(**SETTINGS, callbacks=[Progress()], enable_checkpointing=False, max_epochs=1)
    trainer.run = Run(Path("job"))
    trainer.run.create()
    trainer.fit(line(), points(), points())
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("job · CPU, ")
    assert second.startswith("epoch 1/1  ")


@pytest.mark.filterwarnings("ignore:.*returned `None`.*")
def test_skipped_step_shows_no_loss(workdir: Path, often: None, capsys: pytest.CaptureFixture[str]) -> None:
    class Skips(Line):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
            return None

    with pytest.raises(UserError, match="returned no loss for any batch"):
        train(Skips(), max_epochs=1)
    assert "train/loss" not in capsys.readouterr().out
