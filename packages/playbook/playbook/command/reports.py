"""Reports that programs read: standard output holds the report of a verb alone, as --format json asks for."""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from playbook.processes import is_first_process

_reserved: list[TextIO] = []  # standard output, while what else is printed goes to standard error


@contextmanager
def reserved_stdout() -> Iterator[None]:
    """Sends what is printed meanwhile to standard error, apart from reports."""
    _reserved.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved.pop()


@contextmanager
def report_on_stdout() -> Iterator[None]:
    """Sends what is printed meanwhile, a report, to standard output."""
    with redirect_stdout(_reserved[-1] if _reserved else sys.stdout):
        yield


def print_json(report: dict[str, Any]) -> None:
    """Prints a report as JSON, from one of the processes of a training; numbers that are not finite become null."""
    if is_first_process():
        with report_on_stdout():
            print(json.dumps(_finite(report), indent=2, ensure_ascii=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
