"""Runs that are cut off at any step, and continued: they end with bitwise the same weights and metrics."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.testing.command import Cli, Result
from playbook.testing.processes import values_logged

BATCHES, EPOCHS = 5, 3  # 1,078 samples in batches of 250: four full ones and a short one


class PowerCutError(BaseException):
    """Ends a run without any chance to save."""


class CutAt(Callback):
    """Ends the run in the middle of step `step`, counted from 1: after its backward pass."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        if trainer.global_step + 1 == self.step:
            raise PowerCutError


def fit(cli: Cli, recipe: str, run: str, *args: str) -> Result:
    """Starts or continues a short run of a recipe on the digits, whose net has an option `widths`."""
    return cli(
        "fit", "--config", recipe, "--run_dir", run, "--ckpt_path", "last", "--data.batch_size", "250",
        "--trainer.max_epochs", str(EPOCHS), "--trainer.log_every_n_steps", "2", "--model.net.widths", "[8, 16]", *args,
    )  # fmt: skip


def cut(cli: Cli, recipe: str, run: str, step: int, *args: str) -> None:
    """Starts such a run, and ends it in the middle of a step, counted from 1."""
    with pytest.raises(PowerCutError):
        fit(
            cli,
            recipe,
            run,
            "--trainer.callbacks+=playbook.testing.resume.CutAt",
            f"--trainer.callbacks.step={step}",
            *args,
        )


def resume(cli: Cli, recipe: str, run: str, *args: str) -> Result:
    """Continues a run that was cut."""
    return fit(cli, recipe, run, "--trainer.callbacks", "null", *args)  # the checkpoint's configuration has CutAt


def weights(run: str) -> dict[str, torch.Tensor]:
    """The weights of last.ckpt."""
    return torch.load(Path(run) / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def assert_same_ending(run: str, reference: str) -> None:
    """Compares the weights and metrics of two runs, bit by bit."""
    for name, value in weights(reference).items():
        assert torch.equal(value, weights(run)[name]), f"{name} differs after resuming in {run}"
    assert values_logged(Path(run)) == values_logged(Path(reference))


VARIANTS = {
    "accumulation": ("--trainer.accumulate_grad_batches", "2"),
    "validation within": ("--trainer.val_check_interval", "2"),
    "validation every step": ("--trainer.val_check_interval", "1"),
    "validation across epochs": ("--trainer.val_check_interval", "3", "--trainer.check_val_every_n_epoch", "null"),
    "validation in other epochs": ("--trainer.check_val_every_n_epoch", "2"),
    "accumulation and validation": (
        "--trainer.accumulate_grad_batches", "2", "--trainer.val_check_interval", "1", "--data.num_workers", "2",
    ),
    "plateau": ("--model.schedule", "ReduceLROnPlateau", "--model.schedule.patience", "0"),
    "plateau within": (
        "--model.schedule", "ReduceLROnPlateau", "--model.schedule.patience", "0", "--trainer.val_check_interval", "2",
    ),
    "one cycle": ("--model.schedule", "OneCycleLR", "--model.schedule.max_lr", "0.01"),
    "limited batches": ("--trainer.limit_train_batches", "3", "--trainer.val_check_interval", "2"),
}  # fmt: skip
