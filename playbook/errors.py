"""Mistakes of the user, said in one line: what, where, what was expected, the nearest valid choice."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can mend: printed as one line, exit code 2, no traceback."""


class HowTo(UserError):  # noqa: N818  # it tells how to, and is no error of code
    """A mistake whose remedy takes a few lines of code: printed as it stands."""


class Stopped(BaseException):
    """A signal asked for the end of training, and what was done is saved.

    Args:
        number: of the signal.
        exit_code: of the command; 128 + number, as a shell has it, when left out.
    """

    def __init__(self, number: int, exit_code: int | None = None) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number if exit_code is None else exit_code


def nearest(name: str, choices: Iterable[str], count: int = 3) -> str:
    """«. Nearest: a, b» for a misspelt or abbreviated name, or nothing if no choice comes close."""
    choices = list(choices)
    found = difflib.get_close_matches(name, choices, n=count, cutoff=0.6)
    found = found or [choice for choice in choices if choice.startswith(name)][:count]
    return f". Nearest: {', '.join(found)}" if found else ""
