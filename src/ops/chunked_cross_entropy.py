"""Placeholder."""

from typing import Any


def chunked_cross_entropy(*args: Any) -> Any:
    raise NotImplementedError(args)
