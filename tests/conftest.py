"""Fixtures for the tests of what is in `src/` and `configs/`: the command line in this process and in its own."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.playbook import running
from tests.playbook.marks import pytest_collection_modifyitems
from tests.playbook.running import PUBLISHED, QUIET, ROOT, UNSAVED, Cli, Result, command_line, needs, workdir

__all__ = [
    "PUBLISHED",
    "QUIET",
    "ROOT",
    "UNSAVED",
    "Cli",
    "Result",
    "needs",
    "pytest_collection_modifyitems",
    "workdir",
]

CNN_DIGITS = str(ROOT / "configs/vision/cnn-digits.yaml")
MLP_DIGITS = str(ROOT / "configs/vision/mlp-digits.yaml")


@pytest.fixture
def cli(workdir: Path, capfd: pytest.CaptureFixture[str]) -> Cli:  # the fixture of that name
    """Runs `python -m src …` in this process."""
    return command_line("src", capfd)


def cli_process(*args: str, **settings: Any) -> subprocess.Popen[str]:
    """Starts `python -m src …` in a process of its own."""
    return running.cli_process(*args, **settings, package="src")
