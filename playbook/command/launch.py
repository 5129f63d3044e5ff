"""Starts a verb that needs a model: quiet imports, then the command line, then what an error means."""

import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings
from types import FrameType
from typing import Any

from playbook.command.arguments import Invocation
from playbook.errors import Stopped, UserError
from playbook.processes import FIRST_SPEAKS_S, calm_torch, is_first_process

QUIET = (  # warnings that the user can do nothing about, or that Playbook has already dealt with
    r".*does not have many workers.*",
    r".*is smaller than the logging interval.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*your dataloader is not resumable.*",
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",
    r".*when logging on epoch level in distributed setting.*",  # metrics are synchronised where they are computed
    r".*Encountered `nan` values in tensor.*",  # the loss that is shown says so
    r".*callbacks used to create the checkpoint need to be provided.*",
    r".*You requested to overfit but enabled (train|val) dataloader shuffling.*",
)
LOST = ("by peer", "remote process")  # in what gloo and NCCL raise when a process they wait for is gone


def launch(invocation: Invocation, debug: bool) -> int:
    """Runs the command; returns its exit code."""
    if invocation.verb == "doctor":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the review copies its process, which a GPU in use does not allow
        os.environ["OMP_NUM_THREADS"] = "1"  # nor do threads
    cli, messages = import_quietly()
    try:
        return cli.run(invocation)
    except Stopped as stop:  # before there was a run
        return stop.exit_code
    except SystemExit as exit_:  # --help.all, --print_config
        return int(exit_.code or 0)
    except Exception as error:  # anything may be a mistake of the user; messages.py tells
        if not is_first_process():
            try:
                time.sleep(FIRST_SPEAKS_S)
            except Stopped:
                return 1
        if debug:
            raise
        if isinstance(error, RuntimeError) and any(words in str(error) for words in LOST):
            print("error: another process of this training has ended, what it said stands above", file=sys.stderr)
            return 1
        text = messages.explain(error, invocation)
        if text is None:
            raise
        raise UserError(text) from error


def import_quietly() -> tuple[Any, Any]:
    """Imports torch, Lightning and the command line on them, without what these have to say about it."""
    for pattern in QUIET:
        warnings.filterwarnings("ignore", pattern)
    calm_torch()
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # LightningCLI calls it by its former names
    # threads that sleep at a barrier instead of spinning: a busy machine trains a small net 3 to 6 times as fast
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # (benchmarks/LOG.md)
    gc.disable()  # collecting while a million objects are imported takes time and frees nothing
    main_thread = threading.current_thread() is threading.main_thread()
    former = signal.signal(signal.SIGINT, _leave) if main_thread else None
    try:
        from playbook.command import cli, messages
    finally:
        gc.enable()
        if main_thread:
            signal.signal(signal.SIGINT, former)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)  # hardware lists, tips, advertisements
    return cli, messages


def _leave(signum: int, frame: FrameType | None) -> None:
    """Ends the process at once: an exception amid imports is caught by some of them, which fail later and louder."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)
