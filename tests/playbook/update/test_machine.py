"""Which version a project's machine was made from, where no common commit says it."""

import shutil
from pathlib import Path

import pytest

from playbook.update.git import Git
from playbook.update.machine import history, machines, origin
from tests.playbook.update.upstream import commit, git, isolate, lines, write

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch)
    git(tmp_path, "init", "--quiet", "-b", "main")
    return tmp_path


def version(repository: Path, number: str, **contents: str) -> str:
    """Commits a version, in which some of five files have another content."""
    write(repository, {"playbook/__init__.py": f'__version__ = "{number}"\n'})
    write(repository, {f"playbook/{name}.py": lines(contents.get(name, name)) for name in NAMES})
    return commit(repository)


def origin_of(repository: Path, own: str, *candidates: str) -> str | None:
    tool = Git(repository)
    machine = origin(tool, machines(tool, [own])[0], history(tool, *candidates))
    return machine.commit if machine else None


def test_the_same_files_are_found_whatever_came_after(repository: Path) -> None:
    first = version(repository, "1")
    version(repository, "2", a="new")
    newest = version(repository, "3", a="newer")
    own = version(repository, "1")
    assert origin_of(repository, own, newest) == first


def test_the_newest_commit_with_the_same_files_is_taken(repository: Path) -> None:
    version(repository, "1")
    write(repository, {"README.md": "more\n"})
    later = commit(repository)
    own = version(repository, "1", a="mine")
    assert origin_of(repository, own, later) == later


def test_most_files_in_common_decide_between_commits_of_one_version(repository: Path) -> None:
    version(repository, "1")
    second = version(repository, "1", a="new")
    third = version(repository, "1", a="new", b="new")
    own = version(repository, "1", a="new", c="mine")
    assert origin_of(repository, own, third) == second


def test_the_version_decides_over_files_taken_from_a_later_one(repository: Path) -> None:
    first = version(repository, "1")
    second = version(repository, "2", a="new", b="new", c="new")
    own = version(repository, "1", a="new", b="new", c="new")
    assert origin_of(repository, own, second) == first


def test_of_two_equally_near_the_older_is_taken(repository: Path) -> None:
    first = version(repository, "1")
    second = version(repository, "1", a="new", b="new")
    own = version(repository, "1", a="new")
    assert origin_of(repository, own, second) == first


def test_a_version_of_ones_own_is_compared_by_files_alone(repository: Path) -> None:
    version(repository, "1")
    second = version(repository, "2", a="new", b="new")
    own = version(repository, "2+mine", a="new", b="new", c="mine")
    assert origin_of(repository, own, second) == second


def test_additional_files_of_a_candidate_make_it_farther(repository: Path) -> None:
    first = version(repository, "1")
    write(repository, {"playbook/new.py": lines("new")})
    second = commit(repository)
    git(repository, "checkout", "--quiet", first)
    own = version(repository, "1", a="mine")
    assert origin_of(repository, own, second) == first


def test_a_stranger_has_no_origin(repository: Path) -> None:
    first = version(repository, "1")
    own = version(repository, "1", **{name: f"other {name}" for name in NAMES})
    assert origin_of(repository, own, first) is None


def test_commits_without_a_machine_are_passed_over(repository: Path) -> None:
    write(repository, {"README.md": "start\n"})
    commit(repository)
    first = version(repository, "1")
    assert [machine.commit for machine in history(Git(repository), "HEAD")] == [first]
