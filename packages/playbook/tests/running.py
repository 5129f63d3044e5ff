"""Where the files of the machine's tests are: a small project of their own, and the command line on it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import playbook
from playbook.testing import command

ROOT = Path(playbook.__file__).parents[1]  # holds the package
PROJECT = Path(__file__).parent / "project"  # a small one, with the package `example`: the machine needs no other
CNN_DIGITS = str(PROJECT / "configs/vision/cnn-digits.yaml")
MLP_DIGITS = str(PROJECT / "configs/vision/mlp-digits.yaml")
PATH = (ROOT, PROJECT, Path(__file__).parent)


def cli_process(*args: str, **settings: Any) -> subprocess.Popen[str]:
    """Starts `python -m example …` in a process of its own."""
    return command.cli_process("example", *args, path=PATH, **settings)


def python_path() -> str:
    """Where a process finds the packages."""
    return os.pathsep.join(map(str, PATH))
