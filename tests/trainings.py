"""What holds for a training however it is run: cut off and resumed, out of memory, in two processes.

The tests of a domain call these with the options of its recipes.
"""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook.testing.command import Cli
from playbook.testing.processes import read, values
from playbook.testing.resume import PowerCutError, assert_same_ending, weights
from playbook.training.microbatches import MicroBatches
from tests.conftest import Group

CUT_AT = "--trainer.callbacks+=playbook.testing.resume.CutAt"
HALVES = "--trainer.callbacks+=tests.trainings.HalfMemory"


class HalfMemory(Callback):
    """Runs out of memory in the backward pass of the first batch that has not been split."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
        [self.micro_batches] = [callback for callback in callbacks if isinstance(callback, MicroBatches)]

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        if self.micro_batches.num_parts == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def fit(cli: Cli, run: str, *args: str) -> str:
    """Trains, or resumes, and returns what was printed."""
    done = cli("fit", *args, "--run_dir", run, "--ckpt_path", "last", "--trainer.log_every_n_steps", "1")
    assert done.code == 0, done.err
    return done.out


def assert_resumes_exactly(cli: Cli, steps: list[int], *args: str) -> None:
    """Cuts a run in the middle of each step, resumes it without and with workers, and compares it with an uncut one."""
    args = (*args, "--checkpoint.every_n_steps", "1")
    fit(cli, "whole", *args)
    last = torch.load("whole/checkpoints/last.ckpt", weights_only=True)["global_step"]
    assert all(1 < step <= last for step in steps), f"steps {steps} of {last}"
    for number, step in enumerate(steps):
        with pytest.raises(PowerCutError):
            fit(cli, f"cut-{step}", *args, CUT_AT, f"--trainer.callbacks.step={step}")
        assert torch.load(f"cut-{step}/checkpoints/last.ckpt", weights_only=True)["global_step"] == step - 1
        workers = ("--data.num_workers", str(2 * (number % 2)))
        fit(cli, f"cut-{step}", *args, "--trainer.callbacks", "null", *workers)  # without CutAt
        assert_same_ending(f"cut-{step}", "whole")


def assert_same_in_halves(cli: Cli, *args: str) -> None:
    """Compares the weights after SGD on halves of the batches with those after SGD on whole ones.

    The net must have no dropout and no batch norm.
    """
    args = (*args, "--model.optimizer", "SGD", "--model.optimizer.lr", "0.01", "--model.schedule", "null")
    fit(cli, "whole", *args)
    assert "whose gradients add up to the same step\n" in fit(cli, "halves", *args, HALVES)
    assert_close(weights("halves"), weights("whole"))


def assert_same_in_two_processes(workdir: Path, batch_size: int, metrics: tuple[str, ...], *args: str) -> None:
    """Compares a run of two processes with one of a process, and the rows that they predict.

    The net must have no dropout and no batch norm.
    """
    ddp = ("--trainer.strategy", "ddp", "--trainer.devices")
    args = (*args, "--model.optimizer", "SGD", "--model.optimizer.lr", "0.01", "--model.schedule", "null")
    for world in (1, 2):
        size = ("--data.batch_size", str(batch_size // world))
        several = (*ddp, str(world)) if world > 1 else ()
        Group(world, "fit", *args, *size, *several, "--run_dir", f"run-{world}", cwd=workdir).finish()
    assert_close(weights("run-2"), weights("run-1"))
    for name in metrics:
        found, expected = (values(workdir / f"run-{world}", name) for world in (2, 1))
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-5), name
    tables = []
    for world in (1, 2):
        several = (*ddp, str(world)) if world > 1 else ()
        options = ("--ckpt_path", "run-1", "--data.batch_size", "4", *several, "--run_dir", f"predicted-{world}")
        Group(world, "predict", *options, cwd=workdir).finish()
        tables.append(read(workdir / f"predicted-{world}/predictions/predictions.csv"))
    assert [row["id"] for row in tables[1]] == [row["id"] for row in tables[0]]
    assert len({tuple(row.items()) for row in tables[0]}) == len(tables[0])


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=lambda text, at=name: f"{at}: {text}")
