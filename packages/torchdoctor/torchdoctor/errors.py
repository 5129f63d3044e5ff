"""Mistakes of whoever asks for a review."""

import difflib
from collections.abc import Iterable


class ReviewError(ValueError):
    """A review cannot be run as it was asked for: an unknown defect or threshold, a file, a system without fork.

    The message is one line for the user. What goes wrong in the program under review is a finding instead.
    """


def nearest(name: str, choices: Iterable[str], prefix: str = "") -> str:
    """«. Nearest: a, b» for a misspelt name, or nothing if no choice comes close; a prefix stands before each."""
    names = [prefix + choice for choice in difflib.get_close_matches(name, list(choices))]
    return f". Nearest: {', '.join(names)}" if names else ""
