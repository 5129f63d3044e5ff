"""Entry point of the command line: finds the verb, and imports only what it needs."""

import atexit
import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import NoReturn

from playbook import project
from playbook.command import arguments, class_help, helptext
from playbook.command.check import check
from playbook.command.repeated import unused
from playbook.command.verb import PlainVerb, verbs
from playbook.errors import HowTo, UserError, nearest
from playbook.processes import RANK0_GRACE_S, is_first_process


def main(package: str | None = None) -> NoReturn:
    """Runs the command that this process was started with, and ends the process.

    Args:
        package: of the user's own nets, tasks and data; its `__main__.py` names itself.
    """
    signal.signal(signal.SIGTERM, _leave)  # until a verb has something to finish
    code = run(sys.argv[1:], package or "")
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):  # what comes amid the clean-up at exit must not change the exit code
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Python would first search all objects for cycles, which takes more than a second


def _leave(number: int, frame: object) -> NoReturn:
    """Ends the process with the exit code that it has if the signal comes later."""
    os._exit(128 + number)


def run(args: list[str], package: str) -> int:
    """Runs one command.

    Args:
        args: what follows `python -m src`.
        package: of the user's own nets, tasks and data.

    Returns:
        The exit code: 0 done, 2 a mistake of the user, 1 an error in code, 130 and 143 stopped by a signal.
    """
    project.choose(package)
    debug = bool(os.environ.get("PLAYBOOK_DEBUG"))
    try:
        own, passed_on = _split(args)
        debug = debug or "--debug" in own
        return _dispatch([arg for arg in own if arg != "--debug"], passed_on, debug)
    except UserError as error:
        if debug:
            raise
        text = str(error) if isinstance(error, HowTo) else " ".join(str(error).split())
        print(f"error: {text}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        if debug:
            raise
        print("\nstopped", file=sys.stderr)
        return 130


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of the command line itself, and those that its verb passes on to another program."""
    start = next((index for index, arg in enumerate(args) if arg != "--debug"), len(args))
    verb = verbs().get(args[start]) if start < len(args) else None
    if verb is None or isinstance(verb, PlainVerb):
        return args, []
    number = start + 1 + verb.num_own(args[start + 1 :])
    return args[:number], args[number:]


def _dispatch(args: list[str], passed_on: list[str], debug: bool) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(helptext.overview())
        return 0
    if args[0] in ("-V", "--version"):
        print(helptext.versions())
        return 0
    name, rest = args[0], args[1:]
    if name not in verbs():
        raise UserError(f"{name}: no such verb, expected one of {', '.join(verbs())}{nearest(name, verbs())}")
    verb = verbs()[name]
    if isinstance(verb, PlainVerb):
        return verb.answer(rest)
    if "--help" in rest or "-h" in rest:
        print(helptext.verb_page(verb))
        return 0
    further = verb.first([*rest, *passed_on])
    if isinstance(further, int):
        return further
    rest = further
    try:
        invocation = arguments.read(verb, ["--help" if arg == "--help.all" else arg for arg in rest])
        if (page := class_help.page(invocation)) is not None:
            print(page)
            return 0
        check(invocation)
        invocation.require_checkpoint()
        if is_first_process():
            for text in unused(rest):
                print(f"warning: {text}", file=sys.stderr)
    except UserError:
        if not is_first_process():
            time.sleep(RANK0_GRACE_S)
        raise
    return import_module("playbook.command.launch").launch(invocation, debug)
