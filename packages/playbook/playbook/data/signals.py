"""Signals about loader workers: a death is told at once, and torch's own handler is kept from telling it anywhere."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import signal_handling


def handles_deaths() -> bool:
    """Whether this thread may set handlers of signals, on a system that has this one."""
    return hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()


@contextmanager
def without_torch_handler() -> Iterator[None]:
    """Keeps torch from installing its handler of SIGCHLD for the workers that start in here.

    That handler raises wherever the main process is when a worker dies, even in an optimizer step. torch has no public
    way to do without it, so its mark "installed" is set, and put back afterwards: other DataLoaders install the handler
    for themselves.
    """
    if not handles_deaths():
        yield
        return
    former = signal_handling._SIGCHLD_handler_set
    signal_handling._SIGCHLD_handler_set = True
    try:
        yield
    finally:
        signal_handling._SIGCHLD_handler_set = former


def leave_out_of_torch_handler(batches: Any) -> None:
    """Removes the workers of a pass from those that torch's handler checks; another DataLoader may have installed it.

    An empty entry stays, which torch removes when the workers end.
    """
    signal_handling._remove_worker_pids(id(batches))
    signal_handling._set_worker_pids(id(batches), ())


def time_out(*_: Any) -> None:
    """Raises what torch raises when no batch comes in time."""
    raise TimeoutError("DataLoader timed out")
