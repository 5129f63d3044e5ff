"""Errors for mistakes of the user, in one line: option, value, what was expected, the nearest valid choice."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake that the user can fix: printed as one line, exit code 2, no traceback."""


class HowTo(UserError):  # noqa: N818  # it tells how to, and is no error of code
    """A mistake whose fix needs a few lines of code: printed without changes."""


class Stopped(BaseException):
    """A signal has ended training, after a checkpoint was saved.

    Args:
        number: number of the signal.
        exit_code: exit code of the command. Defaults to 128 + number, as in a shell.
    """

    def __init__(self, number: int, exit_code: int | None = None) -> None:
        super().__init__(number)
        self.number = number
        self.exit_code = 128 + number if exit_code is None else exit_code


def nearest(name: str, choices: Iterable[str], count: int = 3) -> str:
    """«. Nearest: a, b» for a misspelt or abbreviated name, or nothing if no choice comes close."""
    choices = list(choices)
    matches = difflib.get_close_matches(name, choices, n=count, cutoff=0.6)
    matches = matches or [choice for choice in choices if name and choice.startswith(name)][:count]
    return f". Nearest: {', '.join(matches)}" if matches else ""
