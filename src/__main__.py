"""python -m src: finds the verb, and imports only what it needs."""

import os
import signal
import sys
import time
from importlib import import_module

from src.command import arguments, discovery, helptext
from src.engine.ranks import FIRST_SPEAKS_S, is_first_process
from src.errors import UserError, nearest

# verbs that need no model: answered before torch is imported; the module has run(args) -> exit code
PLAIN_VERBS = {
    "list": ("src.command.listing", "List recipes, tasks, nets, data and callbacks."),
    "new": ("src.command.new", "Write a new net, task or data set with its test and a recipe that trains at once."),
}


def main(args: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        args: what follows `python -m src`; from the command line when left out.

    Returns:
        The exit code: 0 done, 2 a mistake of the user, 1 an error in code, 130 and 143 stopped by a signal.
    """
    args = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in args or bool(os.environ.get("PLAYBOOK_DEBUG"))
    args = [arg for arg in args if arg != "--debug"]
    try:
        return _dispatch(args, debug)
    except UserError as error:
        if debug:
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `… | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        if debug:
            raise
        print("\nstopped", file=sys.stderr)
        return 130


def _dispatch(args: list[str], debug: bool) -> int:
    verbs = discovery.model_verbs()
    plain = {name: summary for name, (_, summary) in PLAIN_VERBS.items()}
    if not args or args[0] in ("-h", "--help", "help"):
        print(helptext.overview(verbs | plain))
        return 0
    if args[0] in ("-V", "--version"):
        print(helptext.versions())
        return 0
    verb, rest = args[0], args[1:]
    if verb in PLAIN_VERBS:
        return import_module(PLAIN_VERBS[verb][0]).run(rest)
    if verb not in verbs:
        raise UserError(
            f"{verb}: no such verb, expected one of {', '.join([*verbs, *plain])}{nearest(verb, [*verbs, *plain])}"
        )
    if "--help" in rest or "-h" in rest:
        print(helptext.verb_page(verb, verbs[verb]))
        return 0
    try:
        invocation = arguments.read(verb, ["--help" if arg == "--help.all" else arg for arg in rest])
    except UserError:
        if not is_first_process():
            time.sleep(FIRST_SPEAKS_S)
        raise
    return import_module("src.command.launch").launch(invocation, debug)


if __name__ == "__main__":
    code = main()
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):  # what comes amid the clean-up at exit must not change the exit code
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    sys.exit(code)
