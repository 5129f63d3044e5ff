"""Which project a command works for, and from where it imports."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import project, renamed


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(project, "_current", project.current())
    yield
    renamed.rename("")


def test_a_package_lies_beside_its_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thin_package").mkdir()
    (tmp_path / "thin_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    own = project.choose("thin_package")
    assert own is project.current()
    assert own.configs == tmp_path / "configs"
    assert own.command == "python -m thin_package"


def test_without_a_package_modules_are_imported_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = [path for path in sys.path if path]  # as a console script has it
    monkeypatch.setattr(sys, "path", elsewhere.copy())
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert project.choose("").command == "playbook"
        assert sys.path == [str(tmp_path), *elsewhere]


def test_python_m_has_the_working_directory_on_its_path_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    before = sys.path.copy()
    project.choose("")
    assert sys.path == before
