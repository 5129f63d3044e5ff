"""The step against its formula, however it is cut; the teacher stays outside of what trains and of what is saved."""

import json
import subprocess
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from playbook import Trainer
from playbook.checkpoints.io import load
from playbook.testing.command import UNSAVED, Cli
from playbook.testing.resume import BATCHES, assert_same_ending, cut, fit, resume
from src.tasks.classification import Classification
from src.tasks.segmentation import Segmentation
from tests.conftest import CNN_DIGITS, MLP_DIGITS, cli_process

B, D, K, IGNORED = 6, 5, 4, 255


class Linear(nn.Module):
    """A 1 × 1 convolution, or a linear layer, behind a dropout that a teacher must not apply."""

    def __init__(self, num_classes: int = K, in_channels: int = D, is_dense: bool = False) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.layer = nn.Conv2d(in_channels, num_classes, 1) if is_dense else nn.Linear(in_channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x if self.layer.weight.requires_grad else self.dropout(x))


SETTINGS: dict[str, Any] = {"max_epochs": 1, "limit_val_batches": 0, "run_dir": False}


def student(is_dense: bool = False, **options: Any) -> Any:
    torch.manual_seed(0)
    task: Any = Segmentation if is_dense else Classification
    return task(Linear(is_dense=is_dense), K, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), **options)


def samples(num: int = B, is_dense: bool = False) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    shape = (4, 3) if is_dense else ()
    target = torch.randint(K, (num, *shape), generator=generator)
    if is_dense:
        target[torch.rand(target.shape, generator=generator) < 0.4] = IGNORED
    return TensorDataset(torch.randn(num, D, *shape, generator=generator), target)


def train(module: Any, *callbacks: Any, data: Any = None, batch_size: int = B, **settings: Any) -> pl.Trainer:
    trainer = Trainer(**{**UNSAVED, **SETTINGS, "callbacks": list(callbacks), **settings})
    loader = DataLoader(data or samples(), batch_size)
    trainer.fit(module, loader, loader)
    return trainer


DISTILL = ("--trainer.callbacks+=Distill", "--trainer.callbacks.teacher")


@pytest.mark.slow
def test_command_line(cli: Cli) -> None:
    """A student needs its teacher to be trained, and to be continued, and for nothing else."""
    small = ("fit", "--config", MLP_DIGITS, "--data.batch_size", "512", "--trainer.max_epochs", "1")
    assert cli(*small, "--run_dir", "teacher").code == 0
    done = cli(*small, "--run_dir", "run", "--model.net.widths", "[8]", *DISTILL, "teacher")
    assert done.code == 0, done.err
    assert Path("run/metrics.csv").read_text().partition("\n")[0].count("train/distillation_loss") == 1
    again = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2", *DISTILL, "run")
    assert (again.code, again.err) == (
        2,
        "error: --trainer.callbacks.teacher run: this is the run itself, expected another run\n",
    )
    Path("teacher").rename("moved")
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 0, tested.err
    assert f"{json.loads(Path('run/metrics.json').read_text())['test']['test/loss']:.4g}" in tested.out
    gone = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert gone.code == 2
    assert gone.err.startswith("error: --trainer.callbacks.teacher teacher: no such file or run directory")
    assert gone.err.count("\n") == 1


@pytest.mark.slow
def test_continues_exactly(cli: Cli) -> None:
    assert fit(cli, MLP_DIGITS, "teacher", "--model.net.widths", "[32]").code == 0
    args = (*DISTILL, "teacher")
    assert fit(cli, CNN_DIGITS, "whole", *args).code == 0
    for step in (2, BATCHES + 3):
        cut(cli, CNN_DIGITS, f"cut-{step}", step, "--checkpoint.every_n_steps", "1", *args)
        done = resume(cli, CNN_DIGITS, f"cut-{step}", *args)
        assert done.code == 0, done.err
        assert_same_ending(f"cut-{step}", "whole")
    assert fit(cli, CNN_DIGITS, "plain").code == 0
    with pytest.raises(AssertionError, match="differs after resuming"):
        assert_same_ending("plain", "whole")


@pytest.mark.slow
def test_two_processes_train_what_one_does(cli: Cli, workdir: Path) -> None:
    plain = (
        "--config",
        MLP_DIGITS,
        "--model.net.dropout",
        "0",
        "--model.net.norm",
        "none",
        "--trainer.max_epochs",
        "1",
    )
    assert cli("fit", *plain, "--run_dir", "teacher").code == 0
    args = ("fit", *plain, "--seed_everything", "5", *DISTILL, "teacher", "--trainer.accelerator", "cpu")
    assert cli(*args, "--run_dir", "one", "--data.batch_size", "256").code == 0
    two = ("--trainer.devices", "2", "--trainer.strategy", "ddp", "--data.batch_size", "128")
    process = cli_process(*args, *two, "--run_dir", "two", cwd=workdir)
    try:
        _, errors = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, errors
    expected, found = (load(Path(f"{run}/checkpoints/last.ckpt"))["state_dict"] for run in ("one", "two"))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=name)
