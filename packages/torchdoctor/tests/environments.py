"""Environments of Python that tests make, and programs that run in them as they would outside of the tests."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from programs import Result

_OF_TESTS = ("PYTHON", "VIRTUAL_ENV", "COV", "PYTEST")  # what variables of these tests' own process begin with


def execute(command: Sequence[str | Path], folder: Path, limit_s: float | None = None, **variables: str) -> Result:
    """Runs a program in a folder, with none of the paths and options of the tests' own process.

    Args:
        command: the program and its arguments.
        folder: its working directory.
        limit_s: seconds until it is ended with subprocess.TimeoutExpired.
        variables: of its environment, besides those of this process.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OF_TESTS)} | variables
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])  # holds uv-build
    texts = [str(word) for word in command]
    done = subprocess.run(
        texts,
        check=False,
        cwd=folder,
        env=env,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def programs_of(environment: Path) -> Path:
    """The folder of an environment's programs."""
    return environment / ("Scripts" if os.name == "nt" else "bin")
