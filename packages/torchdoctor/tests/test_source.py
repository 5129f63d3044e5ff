"""Which files are the user's, and loops around lines of a source file."""

import site
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

import torchdoctor
from torchdoctor.findings import Place
from torchdoctor.source import (
    is_in_loop,
    is_user,
    loop_target,
    loops_around,
    raised_at,
    treat_as_libraries,
    treat_copies_as_libraries,
)

SOURCE = """\
for epoch in range(3):
    pass

def step(rows):
    for i in range(len(rows)):
        for row in rows:
            row.sum()
    while rows:
        rows = list(map(abs, rows))
    return [row.mean() for row in rows]
"""


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        (2, ["epoch"]),
        (5, []),
        (7, ["i", "row"]),
        (9, ["rows", "_ in map"]),
        (10, ["row"]),
    ],
)
def test_loops_around_a_line_come_from_the_outside_in(tmp_path: Path, line: int, targets: list[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(SOURCE, encoding="utf-8")
    place = Place(str(file), line)
    assert [loop_target(loop) for loop in loops_around(place)] == targets
    assert is_in_loop(place) == (line in (7, 9)), "a statement in a function"


@pytest.fixture
def editable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a package that is installed editable: a .pth file in site-packages names the folder it is in."""
    for name in ("site", "checkout"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "lent.pth").write_text(str(tmp_path / "checkout"), encoding="utf-8")
    (tmp_path / "checkout" / "lent_nets.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    site.addsitedir(str(tmp_path / "site"))
    yield Path(str(import_module("lent_nets").__file__))
    del sys.modules["lent_nets"]
    treat_as_libraries([])


def test_libraries_are_not_the_users() -> None:
    own = (str(Path(torchdoctor.__file__)), str(Path(import_module("torchdoctor.probes.execution.run").__file__ or "")))
    for file in (torch.__file__, pytest.__file__, site.__file__, *own, "<string>", "/opt/site-packages/lent.py"):
        assert not is_user(file), file
    assert is_user(__file__)


def test_an_editable_install_is_the_users_unless_it_is_named(
    editable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert editable == tmp_path / "checkout" / "lent_nets.py"
    assert is_user(str(editable))
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "checkout", str(tmp_path), "checkout", "./checkout/", "site/../checkout"):
        treat_as_libraries([folder])
        assert not is_user(str(editable)), folder
        assert is_user(__file__)
        assert is_user(str(tmp_path.with_name("own") / "checkout" / "lent_nets.py"))
    treat_as_libraries([tmp_path / "check", tmp_path / "site"])
    assert is_user(str(editable)), "these replace those of the call before"


def test_libraries_in_a_folder_and_beside_it_are_libraries_in_its_copy(editable: Path, tmp_path: Path) -> None:
    for folder in ("project/lent", "beside"):
        treat_as_libraries([tmp_path / folder])
        treat_copies_as_libraries(tmp_path / "project", tmp_path / "copy" / "project")
        for place in (tmp_path, tmp_path / "copy"):
            assert not is_user(str(place / folder / "nets.py")), (place, folder)
            assert is_user(str(place / "project" / "train.py"))


def test_an_error_of_syntax_is_where_python_stopped(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import torch\nx = (\n", encoding="utf-8")
    with pytest.raises(SyntaxError) as error:
        compile(file.read_text(encoding="utf-8"), str(file), "exec")
    assert raised_at(error.value) == Place(str(file), 2)
    with pytest.raises(SyntaxError) as error:
        eval("(")
    place = raised_at(error.value)
    assert place is not None
    assert (place.file, place.code) == (__file__, 'eval("(")')
