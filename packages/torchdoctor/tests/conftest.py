"""Fixtures: the command line in this process, and coverage of the forks that probes and scripts run in."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from programs import Cli, Result
from torchdoctor import cli as command_line
from torchdoctor.errors import ReviewError


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory that Python also imports from, and forgets afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


@pytest.fixture
def cli(workdir: Path, capfd: pytest.CaptureFixture[str]) -> Cli:  # the fixture of that name
    """Runs `torchdoctor …` in this process."""

    def run(*args: str) -> Result:
        capfd.readouterr()
        try:
            code = command_line.run(list(args))
        except ReviewError as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(autouse=True)
def lines_of_forks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each fork writes the lines that it ran to a file that is open already: it may not be allowed to open another.

    Coverage's own `patch = ["fork", "_exit"]` opens a file in each fork, which makes these tests ten times slower.
    """
    measuring = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if measuring is None or measuring._collector is None:
        yield
        return
    lines, fork, leave = measuring._collector.data, os.fork, os._exit
    path: Path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def fork_and_forget() -> int:
        process = fork()
        if process == 0:  # what the original ran, it tells itself
            for ran in lines.values():
                ran.clear()
        return process

    def tell_and_leave(code: int) -> NoReturn:
        os.write(file, json.dumps({name: list(ran) for name, ran in lines.items() if ran}).encode() + b"\n")
        leave(code)

    monkeypatch.setattr(os, "fork", fork_and_forget)
    monkeypatch.setattr(os, "_exit", tell_and_leave)
    yield
    os.close(file)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.endswith("}"):  # else its process was killed
            for name, ran in json.loads(line).items():
                lines.setdefault(name, set()).update(ran)
