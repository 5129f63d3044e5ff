"""Fixtures for the tests of what is in `src/` and `configs/`: the command line in this process and in its own."""

import os
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from playbook.testing import command, processes
from playbook.testing.command import Cli, command_line, workdir
from playbook.testing.processes import no_process_group_is_left
from tests.marks import pytest_collection_modifyitems

__all__ = ["no_process_group_is_left", "pytest_collection_modifyitems", "workdir"]

ROOT = Path(__file__).parents[1]
CNN_DIGITS = str(ROOT / "configs/vision/cnn-digits.yaml")
MLP_DIGITS = str(ROOT / "configs/vision/mlp-digits.yaml")
SHRUNK = ("--config", str(ROOT / "configs/debug/one-batch.yaml"))
PUBLISHED = Path(os.environ.get("PLAYBOOK_DATA", ROOT.parent / "shared/data"))  # real data sets, a folder each


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where a published data set is not at hand."""
    reason = f"needs {name} in the folder that PLAYBOOK_DATA names"
    return pytest.mark.skipif(not (PUBLISHED / name).is_dir(), reason=reason)


def present(*recipes: str) -> list[str]:
    """The paths of recipes such as vision/cnn-digits, without those of a domain that the project does not have."""
    paths = [f"configs/{recipe}.yaml" for recipe in recipes]
    return [path for path in paths if (ROOT / path).parent.is_dir()]


@pytest.fixture
def published(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few made-up samples of every data set that is not embedded, where and as they are published."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(workdir / "cache"))
    for file in sorted((ROOT / "tests").glob("*/made_up.py")):
        import_module(f"tests.{file.parent.name}.made_up").write(Path("data"))


@pytest.fixture
def cli(workdir: Path, capfd: pytest.CaptureFixture[str]) -> Cli:  # the fixture of that name
    """Runs `python -m src …` in this process."""
    return command_line("src", capfd)


def cli_process(*args: str, **settings: Any) -> subprocess.Popen[str]:
    """Starts `python -m src …` in a process of its own."""
    return command.cli_process("src", *args, path=[ROOT], **settings)


class Group(processes.Group):
    """Processes of one training with `python -m src …`."""

    def __init__(self, world: int, *args: str, **settings: Any) -> None:
        super().__init__(world, *args, **{"package": "src", "path": [ROOT], **settings})
