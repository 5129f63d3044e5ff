"""Ctrl-C, SIGTERM and SIGKILL at random moments, sent to real processes."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.runs.loggers import MetricsCSV
from playbook.testing.command import Cli, Result, seldom
from playbook.testing.processes import values_logged
from running import CNN_DIGITS, PROJECT, cli_process

if os.name == "nt":
    pytest.skip("Windows has no POSIX signals", allow_module_level=True)
ARGS = ("--config", CNN_DIGITS, "--ckpt_path", "last", "--trainer.max_epochs", "6", "--model.net.widths", "[8, 16]")


def start(workdir: Path, run: str, *args: str) -> subprocess.Popen[str]:
    """Starts a training and waits until a step is logged."""
    process = cli_process("fit", *ARGS, "--run_dir", run, *args, cwd=workdir, new_group=True)
    while not MetricsCSV(workdir / run / "metrics.csv").read():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def weights(workdir: Path, run: str) -> dict[str, torch.Tensor]:
    return torch.load(workdir / run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def assert_ends_like(cli: Cli, workdir: Path, run: str, whole: str) -> None:
    done: Result = cli("fit", *ARGS, "--run_dir", run)
    assert done.code == 0, done.err
    expected = weights(workdir, whole)
    for name, value in weights(workdir, run).items():
        assert torch.equal(value, expected[name]), f"{name} differs after {run} was continued"
    assert values_logged(workdir / run) == values_logged(workdir / whole)


@pytest.mark.parametrize(
    ("number", "workers", "code"),
    [(signal.SIGINT, "0", 130), pytest.param(signal.SIGTERM, "2", 143, marks=pytest.mark.slow)],
    ids=["ctrl-c", "sigterm"],
)
@pytest.mark.slow
def test_a_signal_leaves_a_checkpoint_and_says_how_to_continue(
    cli: Cli, workdir: Path, number: signal.Signals, workers: str, code: int
) -> None:
    process = start(workdir, "run", "--data.num_workers", workers)
    os.killpg(process.pid, number)  # as a terminal and a batch system do: workers get it too
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert "continue  python -m example fit --run_dir run --ckpt_path last" in out
    assert (workdir / "run/checkpoints/last.ckpt").is_file()
    assert cli("fit", *ARGS, "--run_dir", "whole").code == 0
    assert_ends_like(cli, workdir, "run", "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGTERM))]
)
def test_a_signal_after_all_is_done_changes_nothing(workdir: Path, number: signal.Signals) -> None:
    """Python takes most of a second to end, and gives its handlers back before that."""
    small = ("--config", str(PROJECT / "configs/debug/one-batch.yaml"), "--run_dir", "run")
    process = cli_process("fit", "--config", CNN_DIGITS, *small, cwd=workdir, env={"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    while not process.stdout.readline().startswith("continue "):
        assert process.poll() is None
    time.sleep(0.15)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


class SignalAt(Callback):
    """Sends a signal to this process amid a validation.

    Args:
        validation: which one, counted from 1.
        number: the signal.
        at_its_end: as the last thing of that validation.
    """

    def __init__(self, validation: int, number: int, at_its_end: bool = False) -> None:
        self.validation, self.number, self.at_its_end, self.count = validation, number, at_its_end, 0

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        self.count += batch_idx == 0 and not trainer.sanity_checking
        if self.count == self.validation and batch_idx == 2 and not self.at_its_end:
            os.kill(os.getpid(), self.number)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.count == self.validation and self.at_its_end:
            os.kill(os.getpid(), self.number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "accumulate", "validation", "code"),
    [
        ("1.0", "1", 1, 143),
        pytest.param("1.0", "1", 3, 143, marks=pytest.mark.slow),
        pytest.param("7", "1", 3, 138, marks=pytest.mark.slow),
        pytest.param("1", "1", 2, 138, marks=pytest.mark.slow),
        pytest.param("2", "3", 1, 143, marks=pytest.mark.slow),
    ],
    ids=["first epoch", "last epoch", "within", "every step", "amid a step"],
)
def test_a_signal_amid_a_validation_does_not_wait_for_its_end(
    cli: Cli, workdir: Path, interval: str, accumulate: str, validation: int, code: int
) -> None:
    """It does where gradients are pending: they would be lost."""
    args = (*ARGS, "--trainer.max_epochs", "3", "--trainer.val_check_interval", interval,
            "--trainer.accumulate_grad_batches", accumulate, "--model.schedule", "ReduceLROnPlateau",
            "--model.schedule.patience", "0", "--data.batch_size", "64")  # fmt: skip
    once: dict[str, Any] = {"class_path": f"{__name__}.SignalAt"}
    again = [(validation, False), (1, False), (1, True)]  # amid it, amid its repetition, when that is done
    for which, at_its_end in again:
        once["init_args"] = {"validation": which, "number": code - 128, "at_its_end": at_its_end}
        done = cli("fit", *args, "--run_dir", "run", "--trainer.callbacks", json.dumps([once]))
        assert done.code == code, done.err
        assert "continue  python -m example fit --run_dir run --ckpt_path last" in done.out
    assert cli("fit", *args, "--run_dir", "whole").code == 0
    assert cli("fit", *args, "--run_dir", "run", "--trainer.callbacks", "null").code == 0
    expected = weights(workdir, "whole")
    for name, value in weights(workdir, "run").items():
        assert torch.equal(value, expected[name]), f"{name} differs"
    assert values_logged(workdir / "run") == values_logged(workdir / "whole")


LATE = """
import os, signal
from lightning.pytorch import Callback

class Late(Callback):
    def on_test_batch_start(self, trainer, *args):
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_sigterm_in_the_final_test_is_no_success(cli: Cli, workdir: Path) -> None:
    """A scheduler that reads the exit code must not take the job for done."""
    (workdir / "late.py").write_text(LATE)
    done = cli("fit", *ARGS, "--run_dir", "run", "--trainer.callbacks+=late.Late")
    assert done.code == 143, done.err
    assert "continue  python -m example fit --run_dir run --ckpt_path last" in done.out
    again = cli("fit", *ARGS, "--run_dir", "run", "--trainer.callbacks", "null")
    assert again.code == 0, again.err
    assert "test " in again.out


@pytest.mark.slow
def test_second_signal_stops_at_once(workdir: Path) -> None:
    slow = ("--trainer.limit_val_batches", "1.0", "--data.batch_size", "1", "--trainer.val_check_interval", "1.0")
    process = start(workdir, "run", *slow)
    for _ in range(50):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err


@pytest.mark.parametrize("delay", [0.0, 0.6, 1.3])  # seconds; importing torch and Lightning takes longer
@pytest.mark.slow
def test_ctrl_c_while_starting_is_quiet(workdir: Path, delay: float) -> None:
    process = cli_process("fit", *ARGS, cwd=workdir)
    maps = Path(f"/proc/{process.pid}/maps")
    while maps.exists() and "libtorch" not in maps.read_text():  # of its own first imports Python tells by itself
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), err  # to a shell, both are 130
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("seed", seldom(range(3), [0]))
def test_random_kills(cli: Cli, workdir: Path, seed: int) -> None:
    """Killed again and again at random moments, the unchanged command ends with the same weights and metrics."""
    draw = random.Random(seed)
    assert cli("fit", *ARGS, "--run_dir", "whole").code == 0
    for _ in range(3):
        process = cli_process("fit", *ARGS, "--run_dir", "run", "--checkpoint.every_n_steps", "3", cwd=workdir)
        time.sleep(draw.uniform(5, 14))
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        process.communicate(timeout=120)
    assert_ends_like(cli, workdir, "run", "whole")
