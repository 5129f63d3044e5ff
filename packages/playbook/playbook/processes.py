"""Communication between the processes of one training; imports torch lazily, so that errors appear at once."""

import atexit
import gc
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playbook.errors import UserError

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

RANK0_GRACE_S = 10.0  # other ranks wait before they report an error: rank 0 usually reports the same one, and ends them
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has SIGTERM alone, which ends a process at once
EXIT_TIMEOUT_S = 15.0  # for a process to end by itself after rank 0 is done


def is_first_process() -> bool:
    """Whether this is the process that speaks and writes, by its environment, before there is a process group."""
    if "RANK" in os.environ:  # torchrun
        return os.environ["RANK"] == "0"
    # Lightning's launcher, its several hosts started by hand, srun
    return all(os.environ.get(name, "0") == "0" for name in ("LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def is_started_by_lightning() -> bool:
    """Whether another process of this host has started this one, and not torchrun or srun."""
    return "RANK" not in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lets the processes of this host that were started together in one by one, before there is a process group."""
    job = next((os.environ[name] for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID") if name in os.environ), None)
    if job is None:
        yield
        return
    from filelock import FileLock

    port = os.environ.get("MASTER_PORT", "0")
    with FileLock(Path(tempfile.gettempdir()) / f"playbook-{job}-{port}.lock"):
        yield


def calm_torch() -> None:
    """Keeps warnings of torch's C++ code off the output of processes that share one host; errors stay.

    torch asks for the name of every address that it connects to, and warns of each where no name can be looked up, as
    in a container without a network. Over several hosts its warnings stay, as they tell which host cannot be reached.
    torch reads the variable once, when it is imported; a value that the user has set stays.
    """
    if _is_one_host():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


@contextmanager
def no_collection() -> Iterator[None]:
    """For imports: collecting among the million objects that they make takes half a second, and frees nothing."""
    gc.disable()
    try:
        yield
    finally:
        _freeze_once()
        gc.enable()


@cache
def _freeze_once() -> None:
    """Later collections leave out what has been imported; a second time would keep the garbage of a former command."""
    gc.freeze()
    atexit.register(gc.unfreeze)


def _is_one_host() -> bool:
    """Whether all processes of this training run on one host, by the environment."""
    for name in ("GROUP_WORLD_SIZE", "SLURM_NNODES"):  # torchrun, srun
        if name in os.environ:
            return os.environ[name] == "1"
    # several hosts started by hand
    local = os.environ.get("MASTER_ADDR", "localhost") in ("localhost", "127.0.0.1", "::1")
    return local and "NODE_RANK" not in os.environ


def require_one_training(trainer: Any) -> None:
    """Refuses processes that were started together and would train alone, over each other's files.

    Raises:
        UserError: torchrun or srun started several processes, the configuration asks for one.
    """
    several = os.environ.get("WORLD_SIZE", "1") != "1" if "RANK" in os.environ else not is_first_process()
    if several and trainer.world_size == 1:
        raise UserError(
            "--trainer.devices: several processes were started, and each would train alone; expected the number of "
            "processes per host, with --config configs/trainer/ddp.yaml"
        )


def end_others(trainer: Any) -> None:
    """Ends the processes that Lightning has started, which would wait for this one.

    Lightning kills rank 0 when one of its children exits non-zero, so its list of children is emptied first.
    """
    launcher = trainer.strategy.launcher
    started = getattr(launcher, "procs", [])
    processes = [process for process in started if isinstance(process, subprocess.Popen)]
    if launcher is not None and not processes:
        launcher.kill(KILL)
    if processes:
        started.clear()
    for process in processes:
        process.kill()
        process.wait()


def join(trainer: Any) -> None:
    """Waits for the processes that Lightning started, and kills those that do not end in time."""
    started = getattr(trainer.strategy.launcher, "procs", [])
    for process in list(started):
        try:
            process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.clear()  # as in end_others
            process.kill()
            process.wait()


def shard_of(trainer: Any) -> tuple[int, int]:
    """Which share of the data this process takes, and how many shares there are.

    Processes of one tensor-parallel group take the same share: they compute one forward pass together.
    """
    if reads_alone(trainer):
        return 0, 1
    sharding = getattr(getattr(trainer, "strategy", None), "distributed_sampler_kwargs", None)
    if sharding is None:  # one device
        return (trainer.global_rank, trainer.world_size) if trainer is not None else (0, 1)
    return sharding["rank"], sharding["num_replicas"]


def reads_alone(trainer: Any) -> bool:
    """Whether a Trainer of several processes has not started them, as where `export` reads data."""
    if getattr(trainer, "world_size", 1) == 1:
        return False
    from lightning.pytorch import Trainer
    from torch import distributed

    return isinstance(trainer, Trainer) and not distributed.is_initialized()


def highest(trainer: "Trainer", *values: int) -> list[int]:
    """The highest of each value over all processes; every process must ask at the same place."""
    if trainer.world_size == 1:
        return list(values)
    import torch
    from torch import distributed

    tensor = torch.tensor(values, device=trainer.strategy.root_device)
    distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
    return tensor.tolist()


def gathered(trainer: Any, value: Any) -> list[Any]:
    """The value of every process, by rank; every process must ask at the same place.

    Args:
        trainer: or strategy: what knows the number of processes, `world_size`.
        value: of this process; anything that can be pickled.
    """
    if trainer.world_size == 1:
        return [value]
    from torch import distributed

    values: list[Any] = [None] * trainer.world_size
    distributed.all_gather_object(values, value)
    return values
