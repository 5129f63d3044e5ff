"""How long a loader's worker lives: exactly as long as its main process wants it to."""

import multiprocessing
import os
import signal
import sys
import threading
from types import TracebackType


def live_as_long_as_parent(worker_id: int) -> None:
    """Ends the worker at once when its main process is killed, and not before the main process lets it.

    It holds copies of the main process' connections, and the other processes of the training would wait for them.
    torch's own watch looks every 5 s, and for ever at the wrong process if the main one died while it started this.
    Ctrl-C and SIGTERM reach the whole process group, and the main process needs its workers until it has saved. A
    SIGTERM from the main process itself, which is how Python ends its workers at exit, still ends the worker.
    """
    sys.excepthook = _tell
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # Linux; elsewhere nothing tells who sent a signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_exit_for_parent, daemon=True).start()
    threading.Thread(target=_exit_after_parent, daemon=True).start()  # after it, or it would take the signal


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Leaves out what threads raise that hand tensors to a main process which has ended: that tells why itself."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _exit_for_parent() -> None:
    while True:
        if signal.sigwaitinfo({signal.SIGTERM}).si_pid == os.getppid():
            os._exit(0)
