"""The command line in the process of the tests and in its own, and a directory for it to work in."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from playbook.command.main import run as run_command
from playbook.command.verb import ModelVerb, verbs

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # tests run on the CPU, and a failed look for a GPU costs every step
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two that wait for each other lose 100 ms a step on a busy machine
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("PLAYBOOK_REPORT", "false")  # drawing one takes longer than most trainings of the tests
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command line sets it; the tests import torch before it
# what one process compiles, another must not find half written
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # LightningCLI calls it by its former names

QUIET: dict[str, Any] = {  # of a Trainer
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
UNSAVED: dict[str, Any] = {**QUIET, "enable_checkpointing": False}


@dataclass
class Result:
    """What a command left: exit code and output."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory that Python also imports from, as `python -m` does, and forgets afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


def command_line(package: str, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `python -m <package> …` in this process, which saves the seconds that importing torch takes.

    Args:
        package: of the user's own nets, tasks and data.
        capfd: the fixture of that name.
    """

    def run(*args: str) -> Result:
        capfd.readouterr()
        code = run_command([str(arg) for arg in args], package)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def cli_process(
    package: str,
    *args: str,
    cwd: Path,
    path: Iterable[Path],
    env: Mapping[str, str] | None = None,
    new_group: bool = False,
) -> subprocess.Popen[str]:
    """Starts `python -m <package> …` in a process of its own, for signals, start-up and a fresh interpreter.

    Args:
        package: of the user's own nets, tasks and data.
        args: of the command line.
        cwd: working directory of the process.
        path: folders that Python imports from.
        env: further environment variables.
        new_group: whether it leads a process group of its own.
    """
    return subprocess.Popen(
        [sys.executable, "-m", package, *map(str, args)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_group,
    )


def model_verb(name: str) -> ModelVerb:
    """One of the verbs that run a model."""
    verb = verbs()[name]
    assert isinstance(verb, ModelVerb), name
    return verb


def sampled(cases: Iterable[Any], sample: Container[Any]) -> list[Any]:
    """Parameters of a test, of which those in the sample run by default and the others as slow tests."""
    return [case if case in sample else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def seldom(cases: Iterable[Any], often: Container[Any]) -> list[Any]:
    """Parameters of a slow test, each one value or a tuple: CI runs those named here, the weekly job the others."""
    weekly = pytest.mark.weekly
    values = ((case, case if isinstance(case, tuple) else (case,)) for case in cases)
    return [case if case in often else pytest.param(*each, marks=weekly) for case, each in values]
