"""Stops at the same step however often a run is cut off; what the patience counts is Lightning's, and tested there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.testing.command import UNSAVED, Cli
from playbook.testing.line import Line, points
from playbook.testing.resume import BATCHES, PowerCutError, assert_same_ending, cut, fit, resume
from src.callbacks.early_stopping import EarlyStopping
from tests.conftest import CNN_DIGITS

# no improvement is large enough after the first epoch, so patience ends with the third of six
STOPPING = (
    "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.min_delta=10",
    "--trainer.callbacks.patience=2", "--trainer.max_epochs=6",
)  # fmt: skip
STEPS = 3 * BATCHES


class CutInTest(Callback):
    """Ends the run when the training is saved, but before it counts as finished."""

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise PowerCutError


def steps_of(run: str) -> int:
    return torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["global_step"]


class Task(Line):
    """Names its metric, as tasks do."""

    monitor, monitor_mode = "val/score", "max"

    def on_validation_epoch_end(self) -> None:
        self.log("val/score", float(self.current_epoch))


class ValidLoss(Line):
    """Knows nothing of Playbook, and logs its loss under another name."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("valid_loss", self._error(batch))


def stopped(module: Line, callback: EarlyStopping, **settings: Any) -> int:
    trainer = Trainer(**UNSAVED, callbacks=[callback], max_epochs=4, **settings)
    trainer.fit(module, points(), points())
    return trainer.current_epoch


def test_metric_of_the_task_is_watched() -> None:
    assert stopped(Task(), EarlyStopping(patience=1)) == 4, "it grows with every epoch"
    assert stopped(Task(), EarlyStopping(patience=1, mode="min")) == 2
    assert stopped(Task(), EarlyStopping("val/loss", patience=1, min_delta=100)) == 2


@pytest.mark.parametrize("sanity_steps", [0, 1])
def test_loss_that_the_model_logs_is_watched(sanity_steps: int) -> None:
    callback = EarlyStopping(patience=1, min_delta=100)
    assert stopped(ValidLoss(), callback, num_sanity_val_steps=sanity_steps) == 2
    assert callback.monitor == "valid_loss"
    again = EarlyStopping()
    assert again.state_key == callback.state_key
    again.load_state_dict(callback.state_dict())
    assert (again.monitor, again.patience) == ("valid_loss", 3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [(), ("--trainer.val_check_interval", "2")], ids=["epochs", "validation within"])
def test_patience_is_kept_over_a_cut(cli: Cli, variant: tuple[str, ...]) -> None:
    assert fit(cli, CNN_DIGITS, "whole", *STOPPING, *variant).code == 0
    whole = steps_of("whole")
    assert whole == (7 if variant else STEPS)
    for step in (4,) if variant else (2 * BATCHES + 3,):
        cut(cli, CNN_DIGITS, f"cut-{step}", step, "--checkpoint.every_n_steps", "1", *STOPPING, *variant)
        assert resume(cli, CNN_DIGITS, f"cut-{step}", *STOPPING, *variant).code == 0
        assert steps_of(f"cut-{step}") == whole
        assert_same_ending(f"cut-{step}", "whole")


@pytest.mark.slow
def test_a_run_that_had_stopped_trains_no_further(cli: Cli) -> None:
    with pytest.raises(PowerCutError):
        fit(cli, CNN_DIGITS, "run", *STOPPING, f"--trainer.callbacks+={__name__}.CutInTest")
    assert steps_of("run") == STEPS
    done = resume(cli, CNN_DIGITS, "run", *STOPPING)
    assert done.code == 0, done.err
    assert (
        "EarlyStopping: training has already stopped because of val/loss; set a patience above 2 to continue"
        in done.out
    )
    assert steps_of("run") == STEPS
    assert json.loads(Path("run/metrics.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_another_metric_is_watched_anew(cli: Cli) -> None:
    assert fit(cli, CNN_DIGITS, "run", *STOPPING).code == 0
    other = [option.replace("val/loss", "train/loss").replace("epochs=6", "epochs=7") for option in STOPPING]
    done = resume(cli, CNN_DIGITS, "run", *other)
    assert done.code == 0, done.err
    assert "continuing with trainer.callbacks.EarlyStopping.monitor train/loss (was val/loss)" in done.out
    assert steps_of("run") == STEPS + 3 * BATCHES, "the first value, and two that are no improvement"


@pytest.mark.slow
def test_more_patience_trains_on(cli: Cli) -> None:
    assert fit(cli, CNN_DIGITS, "run", *STOPPING).code == 0
    assert steps_of("run") == STEPS
    more = [option.replace("patience=2", "patience=3").replace("epochs=6", "epochs=7") for option in STOPPING]
    assert resume(cli, CNN_DIGITS, "run", *more).code == 0
    assert steps_of("run") == STEPS + BATCHES
