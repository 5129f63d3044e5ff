"""Gives memory back to the system, which the C library otherwise keeps for later."""

import ctypes
import functools
from collections.abc import Callable


def release() -> None:
    """Returns what was freed, of all threads. Does nothing where the C library has no such function."""
    if (trim := _malloc_trim()) is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # Windows; macOS and musl
        return None
