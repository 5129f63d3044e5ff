"""Runs a function in a forked process, which may crash or hang without harm to this one."""

import contextlib
import ctypes
import json
import logging
import multiprocessing.util
import os
import select
import signal
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torchdoctor.errors import ReviewError

_POLL_S = 0.05
_LONGEST = 300  # characters of an error: torch lists all its backends
_PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent ends


def end_with_parent() -> None:
    """In a forked process: starts a process group, and on Linux asks to be killed when the parent ends."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class SandboxError(Exception):
    """The function did not return: it raised, ended its process, or took too long."""


def call(function: Callable[[], Any], limit_s: float) -> Any:
    """Returns the function's result, which must be JSON.

    The process is forked: the copy holds the same model, data and random state for 20 ms, and changes to them are
    lost with it. Its output goes nowhere.

    Args:
        function: called in the copy.
        limit_s: seconds until the copy and what it started are ended.

    Raises:
        SandboxError: with what happened, and the last line of the traceback if it raised.
    """
    answer = gather([lambda: [function()]], limit_s)[0][0]
    if isinstance(answer, SandboxError):
        raise answer
    return answer


def attempt(function: Callable[[], Any], limit_s: float, otherwise: Any = None) -> Any:
    """Like `call`, but returns a default if the function fails or takes too long."""
    try:
        return call(function, limit_s)
    except SandboxError:
        return otherwise


def gather(functions: Sequence[Callable[[], Iterable[Any]]], limit_s: float) -> list[list[Any]]:
    """Runs generator functions in parallel, each in its own forked process, and returns what each yields.

    What a function has yielded counts: if it then raises, ends its process or takes too long, a SandboxError follows.

    Raises:
        ReviewError: this system has no fork.
    """
    if not hasattr(os, "fork"):
        raise ReviewError("the review copies its process (os.fork), which this system cannot; Linux, macOS and WSL can")
    started = [_start(function) for function in functions]
    deadline = time.monotonic() + limit_s
    return [_finish(process, reader, deadline, limit_s) for process, reader in started]


def _start(function: Callable[[], Iterable[Any]]) -> tuple[int, int]:
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _run_and_leave(function, writer)
    os.close(writer)
    return process, reader


def _finish(process: int, reader: int, deadline: float, limit_s: float) -> list[Any]:
    status = None
    try:
        received, status = _receive(process, reader, deadline)
    finally:
        os.close(reader)
        _end(process)
        if status is None:
            os.waitpid(process, 0)
    whole_lines = received[: received.rfind(b"\n") + 1].splitlines()
    answers = [json.loads(line) for line in whole_lines]
    items = [answer["item"] for answer in answers if "item" in answer]
    if not answers or "error" not in answers[-1]:  # the last line of a function that ended by itself
        ended = status is not None and f"ended its process with {os.waitstatus_to_exitcode(status)}"
        items.append(SandboxError(ended or f"took more than {limit_s:.3g} s"))
    elif answers[-1]["error"] is not None:
        items.append(SandboxError(answers[-1]["error"]))
    return items


def _run_and_leave(function: Callable[[], Iterable[Any]], writer: int) -> None:
    code = 1
    try:
        end_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)  # those of the original do not exist here, nor does its GPU
        torch.cuda.is_available = lambda: False
        torch.Tensor.cuda = lambda self, *_, **__: self
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        _reopen_files()
        util: Any = multiprocessing.util
        util._run_after_forkers()  # a loader sends tensors to its workers by a thread that is not copied
        try:
            for item in function():
                _send(writer, {"item": item})
            end = {"error": None}
        except BaseException as error:  # of any kind: the original gets its description
            end = {"error": describe(error)}
        _send(writer, end)
        code = 0
    finally:
        os._exit(code)


def _send(writer: int, answer: dict[str, Any]) -> None:
    content = json.dumps(answer).encode() + b"\n"
    while content:
        content = content[os.write(writer, content) :]


def _reopen_files() -> None:
    """Reopens the files that the program reads: forked processes share positions and would skip each other's data."""
    folder = "/proc/self/fd"
    for number in os.listdir(folder) if os.path.isdir(folder) else ():
        with contextlib.suppress(OSError):  # of the listing itself, and what may not be opened again
            if stat.S_ISREG(os.fstat(int(number)).st_mode):
                with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as file:
                    position, flags = (line.split()[1] for line in file.readlines()[:2])
                own = os.open(f"{folder}/{number}", int(flags, 8) & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL))
                os.lseek(own, int(position), os.SEEK_SET)
                os.dup2(own, int(number))
                os.close(own)


def describe(error: BaseException) -> str:
    """One line with an error and where it was raised; for a nested sandbox, its own message."""
    if isinstance(error, SandboxError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:_LONGEST]
    return f"{type(error).__name__}: {text} ({os.path.basename(last.filename)}:{last.lineno})"


def _receive(process: int, reader: int, deadline: float) -> tuple[bytes, int | None]:
    """What a process writes until it ends, and its exit status, None if time is up first.

    Not until the pipe is closed: processes that it started, and that outlive it, hold the other end as well.
    """
    content, status = bytearray(), None
    while True:
        remaining_s = deadline - time.monotonic()
        pause = max(0.0, min(remaining_s, _POLL_S)) if status is None else 0.0
        chunk = os.read(reader, 2**16) if select.select([reader], [], [], pause)[0] else b""
        content += chunk
        if not chunk and (status is not None or remaining_s <= 0):
            return bytes(content), status
        if not chunk:
            ended, code = os.waitpid(process, os.WNOHANG)
            status = code if ended else None


def _end(process: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
