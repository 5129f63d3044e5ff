"""Fixtures for the machine's tests, which run the project in `project/`."""

from pathlib import Path

import pytest

from playbook import project
from playbook.testing.command import Cli, command_line, workdir
from playbook.testing.processes import no_process_group_is_left

__all__ = ["no_process_group_is_left", "workdir"]


@pytest.fixture
def cli(workdir: Path, capfd: pytest.CaptureFixture[str]) -> Cli:  # the fixture of that name
    """Runs `python -m example …` in this process."""
    return command_line("example", capfd)


@pytest.fixture(autouse=True)
def example() -> None:
    """Whatever ran before in this process, commands that are printed name the package of these tests."""
    project.choose("example")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a module of somebody's own, for all tests of a file."""
    from jobs import OWN

    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    return folder
