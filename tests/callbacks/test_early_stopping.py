"""Stops at the same step however often a run is cut off; what the patience counts is Lightning's, and tested there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from src.callbacks.early_stopping import EarlyStopping
from tests.conftest import CNN_DIGITS, Cli
from tests.playbook.training.resume.test_exact import BATCHES, PowerCutError, assert_same_ending, cut, fit, resume

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
        fit(cli, CNN_DIGITS, "run", *STOPPING, "--trainer.callbacks+=tests.callbacks.test_early_stopping.CutInTest")
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patience": 0}, "patience: expected at least 1 validation, got 0"),
        ({"min_delta": -0.1}, "min_delta: expected at least 0, got -0.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        EarlyStopping(**arguments)
