"""Coverage of the probes: they run in forks, whose lines would be lost with them."""

from collections.abc import Callable
from typing import Any

import coverage
import pytest

from playbook.doctor import sandbox


@pytest.fixture(autouse=True)
def lines_of_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fork sends the lines that it ran along with its answer.

    Coverage's own `patch = ["fork", "_exit"]` opens a file in each fork, which makes these tests ten times slower.
    """
    measuring = coverage.Coverage.current()
    if measuring is None or measuring._collector is None:
        return
    lines, original = measuring._collector.data, sandbox.calls

    def calls(functions: list[Callable[[], Any]], limit_s: float) -> list[Any]:
        def run(function: Callable[[], Any]) -> dict[str, Any]:
            return {"value": function(), "lines": {file: list(ran) for file, ran in lines.items()}}

        answers = original([lambda function=function: run(function) for function in functions], limit_s)
        for answer in answers:
            if isinstance(answer, dict):
                for file, ran in answer["lines"].items():
                    lines.setdefault(file, set()).update(ran)
        return [answer["value"] if isinstance(answer, dict) else answer for answer in answers]

    monkeypatch.setattr(sandbox, "calls", calls)
