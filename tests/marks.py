"""Marks every test by what it runs: a unit in this process, the command line in this process, or other processes."""

import inspect
from types import CodeType
from typing import Any

import pytest

KINDS = ("unit", "run", "process")
# what starts a process
STARTERS = {"Group", "Popen", "cli_process", "fork", "multiprocessing", "run_in_processes", "subprocess"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Adds the mark of its kind to each test that has none."""
    for item in items:
        if isinstance(item, pytest.Function) and not any(item.get_closest_marker(kind) for kind in KINDS):
            names = _names(item)
            item.add_marker("process" if names & STARTERS else "run" if "cli" in names else "unit")


def _names(item: pytest.Function) -> set[str]:
    """What the test refers to, itself or through fixtures and functions of its file."""
    own = vars(item.module)
    names, unread = set(item.fixturenames), [*item.fixturenames, item.function.__name__]
    while unread:
        value = own.get(unread.pop())
        code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
        further = _names_in(code) - names
        names |= further
        unread += further
    return names


def _names_in(code: Any) -> set[str]:
    if not isinstance(code, CodeType):
        return set()
    return set(code.co_names).union(*map(_names_in, code.co_consts))
