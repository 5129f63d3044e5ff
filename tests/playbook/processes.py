"""Starts the processes of one training as torchrun and srun do, forked from an interpreter that has torch already.

They are processes of their own that run the real command line; what is saved is the seconds that each would import.
"""

import csv
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver, get_context, set_start_method
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook.checkpoints.io import load
from tests.playbook.running import CNN_DIGITS, MLP_DIGITS, ROOT, python_path

TIMEOUT_S = 100.0  # of a busy machine
context: Any = get_context("forkserver" if sys.platform != "win32" else "spawn")
context.set_forkserver_preload(
    [
        "playbook.command.main",
        "playbook.command.cli",
        "playbook.checkpoints.sharded",
        "example.data.digits",
        "example.nets.vit",
    ]
)


OWN = """
import os, signal
from lightning.pytorch import Callback
from example.data.digits import Digits
from example.tasks.classification import Classification

class Odd(Digits):
    '''Counts that no number of processes divides: batches differ in size, and their number over the ranks.'''
    def setup(self, stage):
        super().setup(stage)
        for name, count in {"train_set": 203, "val_set": 65, "test_set": 65}.items():
            whole = getattr(self, name)
            setattr(self, name, type(whole)(*(tensor[:count] for tensor in whole.tensors)))

class Broken(Odd):
    '''Samples that only the first of several processes can load.'''
    def setup(self, stage):
        super().setup(stage)
        self.augment = self.fail

    def fail(self, sample):
        if self.trainer.global_rank:
            raise ValueError("a broken file")
        return sample

class Averaged(Classification):
    '''Logs the validation loss once more, as many modules do.'''
    def validation_step(self, batch, batch_idx):
        loss = self._step("val", batch, batch_idx)
        self.log("val/averaged", loss, sync_dist=True, on_epoch=True, batch_size=len(batch[1]))

class Early(Callback):
    '''SIGTERM for the first process alone, before the training.'''
    def on_validation_batch_start(self, trainer, *_):
        if trainer.is_global_zero and trainer.sanity_checking:
            os.kill(os.getpid(), signal.SIGTERM)

class Late(Callback):
    '''The same after it.'''
    def on_test_batch_start(self, trainer, *_):
        if trainer.is_global_zero:
            os.kill(os.getpid(), signal.SIGTERM)
"""
SMALL = ("--trainer.accelerator", "cpu", "--data", "own.Odd")
PLAIN = (
    "fit",
    "--config",
    MLP_DIGITS,
    *SMALL,
    "--trainer.max_epochs",
    "2",
    "--model",
    "own.Averaged",
    "--model.net.dropout",
    "0",
)
PLAIN = (*PLAIN, "--model.net.norm", "layer", "--model.net.widths", "[32]", "--model.schedule", "null")
# a batch norm, dropout and moved images: all that a run must take up again
RICH = ("fit", "--config", CNN_DIGITS, *SMALL, "--trainer.max_epochs", "5", "--trainer.log_every_n_steps", "1")
RICH = (*RICH, "--data.shift", "1", "--model.net.widths", "[4, 8]")
RICH = (*RICH, "--ckpt_path", "last", "--checkpoint.every_n_steps", "1")


def on(world: int, batch: int = 32) -> tuple[str, ...]:
    """Options for so many processes that share a batch."""
    ddp = ("--config", str(ROOT / "configs/trainer/ddp.yaml")) if world > 1 else ()
    return (*ddp, "--trainer.devices", str(world), "--data.batch_size", str(batch // world))


class Group:
    """The processes of one training, by rank.

    Args:
        world: how many there are.
        args: of the command line.
        cwd: where they run, or one for each of them; they write their output to `rank<i>-<n>.log` there.
        env: what the launcher tells a rank; as torchrun does when left out.
        package: whose command line it is.
    """

    def __init__(
        self,
        world: int,
        *args: str,
        cwd: Path | list[Path],
        env: Callable[[int, int], dict[str, str]] | None = None,
        package: str = "example",
    ) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("forks processes, which this system cannot")
        folders = cwd if isinstance(cwd, list) else [cwd] * world
        self.logs = [folder / f"rank{rank}-{time.monotonic_ns()}.log" for rank, folder in enumerate(folders)]
        told, port = env or torchrun, free_port()
        self.ranks = []
        _start_server()
        for rank, log in enumerate(self.logs):
            variables = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **told(rank, world)}
            self.ranks.append(
                context.Process(target=_run, args=(log.parent, variables, package, [str(a) for a in args], log))
            )
        for rank in self.ranks:
            rank.start()

    def wait(self) -> list[int]:
        """The exit codes; a process that does not end is an error."""
        until = time.monotonic() + TIMEOUT_S
        for rank in self.ranks:
            rank.join(max(0.0, until - time.monotonic()))
        codes = [rank.exitcode for rank in self.ranks]
        self.kill()
        if None in codes:
            pytest.fail(f"exit codes {codes}, and what hangs has none:\n{self.output()}")
        return codes

    def finish(self) -> str:
        """Waits for success; what was printed."""
        codes = self.wait()
        assert set(codes) == {0}, f"{codes}\n{self.output()}"
        return self.output()

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()

    def output(self) -> str:
        return "".join(log.read_text(errors="replace") for log in self.logs if log.exists())

    def send(self, number: signal.Signals, *ranks: int) -> None:
        for rank in ranks or range(len(self.ranks)):
            os.kill(self.ranks[rank].pid, number)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Waits for something that happens while all processes live."""
        until = time.monotonic() + TIMEOUT_S
        while not reached():
            codes = [rank.exitcode for rank in self.ranks]
            if any(code is not None for code in codes) or time.monotonic() > until:
                self.kill()
                pytest.fail(f"exit codes {codes} too early, or none too late:\n{self.output()}")
            time.sleep(0.01)


def torchrun(rank: int, world: int) -> dict[str, str]:
    """What `torchrun --nproc-per-node world` tells a process."""
    local = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    return {"TORCHELASTIC_RUN_ID": "test"} | {name: str(value) for name, value in local.items()}


def srun(rank: int, world: int) -> dict[str, str]:
    """What `srun --ntasks-per-node world` tells a process."""
    told = {"PROCID": rank, "LOCALID": rank, "NODEID": 0, "NTASKS": world, "NTASKS_PER_NODE": world, "JOB_ID": 4711}
    return {"SLURM_JOB_NAME": "fit", "SLURM_NNODES": "1"} | {f"SLURM_{name}": str(v) for name, v in told.items()}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _start_server() -> None:
    """Has the server find our modules: of what a process hands over, it takes no path of imports."""
    former = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = python_path()
    forkserver.ensure_running()
    os.environ.pop("PYTHONPATH") if former is None else os.environ.update(PYTHONPATH=former)


def _run(cwd: Path, env: dict[str, str], package: str, args: list[str], log: Path) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [package, *args]
    sys.path.insert(0, str(cwd))
    set_start_method("fork", force=True)  # of loader workers; it is what a process of its own has
    from playbook.command.main import run

    sys.exit(run(args, package))


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def values(run: Path, name: str) -> list[float]:
    """A column of metrics.csv."""
    return [float(row[name]) for row in read(run / "metrics.csv") if row[name]]


def steps(run: Path) -> int:
    """Optimizer steps by the newest row of metrics.csv that is whole; 0 before there is one."""
    rows = read(run / "metrics.csv") if (run / "metrics.csv").exists() else []
    return max([int(row["step"]) + 1 for row in rows if None not in row.values() and row["step"].isdigit()], default=0)


def assert_same_run(run: Path, expected: Path) -> None:
    former = load(expected / "checkpoints/last.ckpt")["state_dict"]
    for name, value in load(run / "checkpoints/last.ckpt")["state_dict"].items():
        assert torch.equal(value, former[name]), f"{name} differs"
    assert (run / "metrics.csv").read_text() == (expected / "metrics.csv").read_text()
