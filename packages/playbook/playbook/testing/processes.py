"""Starts the processes of one training as torchrun and srun do, forked from an interpreter that has torch already.

They are processes of their own that run the real command line; what is saved is the seconds that each would import.
"""

import csv
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import forkserver, get_context, set_start_method
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from playbook.checkpoints.io import load

TIMEOUT_S = 100.0  # of a busy machine
_HANGING_S = 240.0  # of several nets one after another, the longest of which take 70 s
GROUP_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")  # which Lightning sets
context: Any = get_context("forkserver" if sys.platform != "win32" else "spawn")
context.set_forkserver_preload(["playbook.command.main", "playbook.command.cli", "playbook.checkpoints.sharded"])


@pytest.fixture(autouse=True)
def no_process_group_is_left() -> Iterator[None]:
    """Ends the process group of a test, and forgets its port: the processes of later tests would ask for the same."""
    former = {name: os.environ.get(name) for name in GROUP_VARIABLES}
    yield
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name, value in former.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


class Group:
    """The processes of one training, by rank.

    Args:
        world: how many there are.
        args: of the command line.
        cwd: where they run, or one for each of them; they write their output to `rank<i>-<n>.log` there.
        package: whose command line it is.
        path: folders that Python imports from.
        env: what the launcher tells a rank; as torchrun does when left out.
    """

    def __init__(
        self,
        world: int,
        *args: str,
        cwd: Path | list[Path],
        package: str,
        path: Iterable[Path],
        env: Callable[[int, int], dict[str, str]] | None = None,
    ) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("forks processes, which this system cannot")
        folders = cwd if isinstance(cwd, list) else [cwd] * world
        self.logs = [folder / f"rank{rank}-{time.monotonic_ns()}.log" for rank, folder in enumerate(folders)]
        told, port = env or torchrun, free_port()
        self.ranks = []
        _start_server(os.pathsep.join(map(str, path)))
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


def run_in_processes(work: Callable[..., None], args: tuple[Any, ...], world: int, store: Path) -> None:
    """Calls `work(rank, *args)` in as many processes at a time, and fails if one of them does.

    Processes that do not end are started once more: now and then a thread of gloo's waits for ever as it gives back the
    buffer of a collective (torch 2.15).

    Args:
        work: a function of a module.
        args: further arguments, which can be pickled.
        world: how many processes.
        store: the file by which they find each other.
    """
    for _ in range(2):
        running = mp.start_processes(work, args, world, join=False, start_method=context.get_start_method())
        assert running is not None
        until = time.monotonic() + _HANGING_S
        while time.monotonic() < until:
            if running.join(timeout=1):
                return
        for process in filter(None, running.processes):
            process.kill()
            process.join()
        store.unlink(missing_ok=True)
    pytest.fail(f"{world} processes did not end in {_HANGING_S:g} s, twice")


def torchrun(rank: int, world: int) -> dict[str, str]:
    """What `torchrun --nproc-per-node world` tells a process."""
    local = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    return {"TORCHELASTIC_RUN_ID": "test"} | {name: str(value) for name, value in local.items()}


def srun(rank: int, world: int) -> dict[str, str]:
    """What `srun --ntasks-per-node world` tells a process."""
    told = {"PROCID": rank, "LOCALID": rank, "NODEID": 0, "NTASKS": world, "NTASKS_PER_NODE": world, "JOB_ID": 4711}
    return {"SLURM_JOB_NAME": "fit", "SLURM_NNODES": "1"} | {f"SLURM_{name}": str(v) for name, v in told.items()}


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _start_server(path: str) -> None:
    """Has the server find our modules: of what a process hands over, it takes no path of imports."""
    former = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path
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
    """The rows of a metrics.csv."""
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def values_logged(run: Path) -> list[dict[str, str]]:
    """What metrics.csv holds of the training: without its speed, which differs each time."""
    rows = [
        {name: text for name, text in row.items() if text and not name.startswith("speed/")}
        for row in read(run / "metrics.csv")
    ]
    return [row for row in rows if row.keys() - {"epoch", "step"}]


def values(run: Path, name: str) -> list[float]:
    """A column of metrics.csv."""
    return [float(row[name]) for row in read(run / "metrics.csv") if row[name]]


def steps(run: Path) -> int:
    """Optimizer steps by the newest row of metrics.csv that is whole; 0 before there is one."""
    rows = read(run / "metrics.csv") if (run / "metrics.csv").exists() else []
    return max([int(row["step"]) + 1 for row in rows if None not in row.values() and row["step"].isdigit()], default=0)


def assert_same_run(run: Path, expected: Path) -> None:
    """Compares weights and metrics, bit by bit."""
    former = load(expected / "checkpoints/last.ckpt")["state_dict"]
    for name, value in load(run / "checkpoints/last.ckpt")["state_dict"].items():
        assert torch.equal(value, former[name]), f"{name} differs"
    assert values_logged(run) == values_logged(expected)
