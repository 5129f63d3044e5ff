"""Runs a verb that needs a model: imports quietly, builds the session, and explains errors."""

import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from types import FrameType
from typing import Any

from playbook.command import legacy
from playbook.command.arguments import Invocation
from playbook.command.reports import reserved_stdout
from playbook.command.verb import Finished
from playbook.errors import HowTo, Stopped, UserError
from playbook.lazy import import_by_name
from playbook.processes import (
    RANK0_GRACE_S,
    calm_torch,
    end_others,
    is_first_process,
    is_started_by_lightning,
    join,
    no_collection,
    require_one_training,
)
from playbook.training.quiet import quiet_loggers, quiet_warnings


def launch(invocation: Invocation, debug: bool) -> int:
    """Runs the command; returns its exit code."""
    with reserved_stdout() if invocation.report_is_for_programs else nullcontext():
        return _launch(invocation, debug)


def _launch(invocation: Invocation, debug: bool) -> int:
    invocation.verb.prepare(invocation)
    cli, messages = import_quietly()
    try:
        return _run(cli, messages, invocation)
    except Stopped as stop:  # before there was a run
        return stop.exit_code
    except SystemExit as exit_:  # --help.all, --print_config
        if isinstance(exit_.code, int | None):
            return exit_.code or 0
        raise  # Python prints what else user code gives to sys.exit
    except Exception as error:  # anything may be a mistake of the user; messages.py tells
        if not is_first_process():
            try:
                time.sleep(RANK0_GRACE_S)
            except Stopped:
                return 1
        if debug or isinstance(error, HowTo):
            raise
        if messages.is_lost_process(error):
            print("error: another process of this training has ended; see its message above", file=sys.stderr)
            return 1
        if (text := messages.explain(error, invocation)) is not None:
            raise UserError(text) from error
        failure = messages.origin(error)
    raise failure  # out of the except block: it keeps what it was itself raised from, and nothing else


def _run(cli: Any, messages: Any, invocation: Invocation) -> int:
    from playbook.runs.loggers import finish
    from playbook.training.resume.signals import requeue, stop_at_once_on_sigterm

    stop_at_once_on_sigterm()
    session = cli.open_session(invocation)
    trains = invocation.verb.checkpoint == "continued"
    try:
        cli.build(session)
        return _run_verb(session)
    except Stopped as stop:
        stopped = stop
    except SystemExit as exit_:
        if not isinstance(exit_.__context__, KeyboardInterrupt):  # how Lightning ends on a second Ctrl-C
            if invocation.running and trains and is_first_process():  # user code; silence would look like an end
                messages.stopped(session.run, f"sys.exit({exit_.code!r})", trains, _saved_step(session))
            raise
        stopped = Stopped(signal.SIGINT)
    except Finished as finished:
        if is_first_process():
            print(finished)
        return 0
    finally:
        finish()
        session.run.release()
    if not is_first_process():
        # Lightning kills the first process, amid its last words, when one that it started ends otherwise
        return 0 if is_started_by_lightning() else stopped.exit_code
    messages.stopped(session.run, messages.signal_name(stopped.number), trains, _saved_step(session))
    requeue(stopped.number)
    return stopped.exit_code


def _saved_step(session: Any) -> int | None:
    """Step of the newest last.ckpt of this process, if it has come so far as to train."""
    callback = getattr(getattr(session, "trainer", None), "checkpoint_callback", None)
    step = getattr(callback, "saved_step", -1)
    return None if step < 0 else step


def _run_verb(session: Any) -> int:
    require_one_training(session.trainer)
    session.invocation.running = True
    try:
        return session.invocation.verb.run(session, **session.own_options) or 0
    except Exception:  # of any kind; it goes on
        end_others(session.trainer)
        raise
    finally:
        join(session.trainer)


def import_quietly() -> tuple[Any, Any]:
    """Imports torch, Lightning and the command line on them, without what these have to say about it."""
    quiet_warnings()
    calm_torch()
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # LightningCLI calls it by its former names
    # threads that sleep at a barrier instead of spinning: a busy machine trains a small net 3 to 6 times as fast
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # (benchmarks/LOG.md)
    main_thread = threading.current_thread() is threading.main_thread()
    former = signal.signal(signal.SIGINT, _leave) if main_thread else None
    try:
        with no_collection():
            import_by_name()
            from playbook.command import cli, messages
    finally:
        if main_thread:
            signal.signal(signal.SIGINT, former)
    quiet_loggers()
    legacy.install()
    return cli, messages


def _leave(signum: int, frame: FrameType | None) -> None:
    """Ends the process at once: an exception amid imports is caught by some of them, which fail later and louder."""
    print("\nstopped", file=sys.stderr, flush=True)
    os._exit(130)
