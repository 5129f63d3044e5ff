"""A monitored metric that nothing logs is told before the first weight changes; one that is logged never is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from playbook.errors import UserError
from playbook.optim.schedules import ReduceLROnPlateau, scheduler_config
from playbook.testing.command import QUIET, UNSAVED
from playbook.testing.line import Line, line, points
from playbook.training.monitors import CheckMonitors
from playbook.training.resume.checkpoint import Checkpoint


class Plateau(Line):
    """Cuts its rate by a metric."""

    def __init__(self, monitor: str) -> None:
        super().__init__()
        self.monitor = monitor

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": scheduler_config(ReduceLROnPlateau(optimizer, self.monitor))}


def train(folder: Path, module: pl.LightningModule, *callbacks: pl.Callback, **settings: Any) -> pl.Trainer:
    settings = {
        **QUIET,
        "max_epochs": 1,
        "enable_checkpointing": any(isinstance(c, Checkpoint) for c in callbacks),
    } | settings
    trainer = pl.Trainer(**settings, callbacks=[CheckMonitors(), *callbacks], default_root_dir=folder)
    trainer.fit(module, points(), points())
    return trainer


def test_monitors_that_are_logged(tmp_path: Path) -> None:
    for monitor in ("val/loss", "train/loss"):
        trainer = train(tmp_path, Plateau(monitor), Checkpoint(monitor), EarlyStopping(monitor))
        assert trainer.global_step == 2


WRONG = {
    "checkpoint": (Line, Checkpoint("val/los"), "--checkpoint.monitor val/los: nothing logs it. Nearest: val/loss"),
    "early stopping": (
        Line,
        EarlyStopping("val/los"),
        "--trainer.callbacks: EarlyStopping: monitor val/los: nothing logs it. Nearest: val/loss",
    ),
    "plateau": (
        lambda: Plateau("train/los"),
        pl.Callback(),
        "--model.schedule.monitor train/los: nothing logs it. Nearest: train/loss",
    ),
    "nothing like it": (Line, Checkpoint("f1"), "--checkpoint.monitor f1: nothing logs it"),
}


@pytest.mark.parametrize("where", WRONG)
def test_monitor_that_nothing_logs(tmp_path: Path, where: str) -> None:
    make, callback, message = WRONG[where]
    module = make()
    before = module.net.weight.clone()
    with pytest.raises(UserError) as caught:
        train(tmp_path, module, callback)
    assert str(caught.value).startswith(message)
    assert torch.equal(module.net.weight, before), "a weight has changed already"


def test_validation_metric_while_validation_is_off(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="val/loss: nothing logs it while validation is off"):
        train(tmp_path, line(), Checkpoint("val/loss"), limit_val_batches=0)
    train(tmp_path, line(), Checkpoint("train/loss"), limit_val_batches=0)


def test_without_sanity_check_names_show_at_the_first_validation(tmp_path: Path) -> None:
    train(tmp_path, line(), Checkpoint("val/loss"), num_sanity_val_steps=0)


class Steps(Line):
    """Logs a metric of steps and of epochs, which Lightning then names twice."""

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        loss = self._error(batch)
        self.log("error", loss, on_step=True, on_epoch=True)
        return loss


@pytest.mark.parametrize("monitor", ["error", "error_step", "error_epoch"])
@pytest.mark.slow
def test_names_of_metrics_logged_by_step_and_epoch(tmp_path: Path, monitor: str) -> None:
    train(tmp_path, Steps(), Checkpoint(monitor))
    with pytest.raises(UserError, match="nothing logs it"):
        train(tmp_path, Steps(), Checkpoint(f"{monitor}_x"))


class AtTheEnd(Line):
    """Logs a name that nobody can know before the epoch ends."""

    def on_train_epoch_end(self) -> None:
        self.log("late", 1.0)


def test_module_with_its_own_end_of_epoch_is_given_the_benefit(tmp_path: Path) -> None:
    train(tmp_path, AtTheEnd(), Checkpoint("late"))
    with pytest.raises(UserError, match=r"--checkpoint\.monitor lat: nothing logs it\. Nearest: late"):
        train(tmp_path, AtTheEnd(), Checkpoint("lat"))


class Known(Line):
    """Says of its own end of an epoch that it logs no other names, as Task does."""

    logs_collections_alone = True

    def on_train_epoch_end(self) -> None:
        pass


class Changed(Known):
    """Logs another one there after all: what a class says is said of its own hook alone."""

    def on_train_epoch_end(self) -> None:
        self.log("late", 1.0)


def test_a_class_says_that_its_end_of_epoch_logs_no_other_names(tmp_path: Path) -> None:
    module = Known()
    before = [weight.detach().clone() for weight in module.parameters()]
    with pytest.raises(UserError, match=r"--checkpoint\.monitor late: nothing logs it"):
        train(tmp_path, module, Checkpoint("late"))
    assert all(torch.equal(*pair) for pair in zip(module.parameters(), before, strict=True))
    train(tmp_path, Changed(), Checkpoint("late"))


class Collected(Line):
    """Has a collection of metrics, as our tasks do, that is logged elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = MetricCollection({"mean": MeanMetric()}, prefix="train/")
        self.others = nn.ModuleList()

    def on_validation_start(self) -> None:
        if not self.trainer.sanity_checking:
            self.kept.update(1.0)
            self.trainer.callback_metrics.update(self.kept.compute())


def test_names_of_a_metric_collection_count(tmp_path: Path) -> None:
    train(tmp_path, Collected(), Checkpoint("train/mean"))


def test_second_fit_is_not_asked_again(tmp_path: Path) -> None:
    trainer = train(tmp_path, line(), Checkpoint("val/loss"))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(line(), points(), points())
    assert trainer.global_step == 4


class Loaders(Line):
    """Logs a loss for each of its validation loaders."""

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val/loss", self._error(batch))


@pytest.mark.parametrize("callback", [Checkpoint("val/loss"), EarlyStopping("val/loss")], ids=["best", "stopping"])
def test_names_of_several_validation_loaders(tmp_path: Path, callback: pl.Callback) -> None:
    """Lightning appends their numbers to the name."""
    saves = isinstance(callback, Checkpoint)
    options = {**QUIET, "max_epochs": 1, "enable_checkpointing": saves, "default_root_dir": tmp_path}
    trainer = pl.Trainer(**options, callbacks=[CheckMonitors(), callback])
    with pytest.raises(UserError, match=r"Nearest: val/loss/dataloader_idx_0, val/loss/dataloader_idx_1$"):
        trainer.fit(Loaders(), points(), [points(), points()])
    assert trainer.global_step == 0


EVERY_TWO: dict[str, Any] = {"check_val_every_n_epoch": 2, "max_epochs": 4}


def test_plateau_follows_the_validations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = train(tmp_path, Plateau("val/loss"), **EVERY_TWO)
    [config] = trainer.lr_scheduler_configs
    assert config.frequency == 2
    assert config.scheduler.last_epoch == 2, "one step for each validation"
    told = "ReduceLROnPlateau looks at val/loss every 2 epochs, as validation runs every 2\n"
    assert capsys.readouterr().out == told
    trainer = train(tmp_path, Plateau("train/loss"), **EVERY_TWO)
    assert trainer.lr_scheduler_configs[0].frequency == 1
    assert capsys.readouterr().out == ""


def test_plateau_follows_the_validations_of_a_resumed_run(tmp_path: Path) -> None:
    callback = CheckMonitors()
    callback.load_state_dict({"validated": ["val/loss"]})
    assert callback.state_dict() == {"validated": ["val/loss"]}
    trainer = pl.Trainer(
        **(UNSAVED | EVERY_TWO), num_sanity_val_steps=0, callbacks=[callback], default_root_dir=tmp_path
    )
    trainer.fit(Plateau("val/loss"), points(), points())
    assert trainer.lr_scheduler_configs[0].frequency == 2


def test_patience_counts_validations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, line(), EarlyStopping("val/loss", patience=3), **EVERY_TWO)
    assert "EarlyStopping: a patience of 3 validations is 6 epochs here" in capsys.readouterr().out
    with pytest.raises(UserError, match="EarlyStopping: check_on_train_epoch_end: expected false, as val/loss"):
        train(tmp_path, line(), EarlyStopping("val/loss", check_on_train_epoch_end=True), **EVERY_TWO)
