"""Coverage of the review: its probes and scripts run in forks, whose lines would be lost with them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import coverage
import pytest


@pytest.fixture(autouse=True)
def lines_of_forks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each fork writes the lines that it ran to a file that is open already: it may not be allowed to open another.

    Coverage's own `patch = ["fork", "_exit"]` opens a file in each fork, which makes these tests ten times slower.
    """
    measuring = coverage.Coverage.current()
    if measuring is None or measuring._collector is None:
        yield
        return
    lines, leave = measuring._collector.data, os._exit
    path: Path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def tell_and_leave(code: int) -> NoReturn:
        os.write(file, json.dumps({name: list(ran) for name, ran in lines.items()}).encode() + b"\n")
        leave(code)

    monkeypatch.setattr(os, "_exit", tell_and_leave)
    yield
    os.close(file)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.endswith("}"):  # else its process was killed
            for name, ran in json.loads(line).items():
                lines.setdefault(name, set()).update(ran)
