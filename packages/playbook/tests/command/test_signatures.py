"""What the source tells of a class's parameters, against what the parser finds by importing it."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from playbook import project
from playbook.command import discovery, signatures
from playbook.command.signatures import signature

MODULE = """
import abc
from dataclasses import dataclass
from functools import wraps
from typing import Generic, TypeVar
import elsewhere as other
from package.inner import Deep as Renamed
from starred import *
from . import nowhere

T = TypeVar("T")

class Base(abc.ABC):
    def __init__(self, size, rate: float = 0.1, *, name: str = "x"):
        ...

class Silent(Base): ...

class Passing(Base):
    def __init__(self, depth: int, **options):
        super().__init__(**options)

class Setting(Base):
    def __init__(self, **options):
        super().__init__(3, name="fixed", **options)

class Popping(Base):
    def __init__(self, **options):
        options.pop("rate")
        super().__init__(**options)

class Hiding(Base):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)

class Keeping:
    def __init__(self, a, **options):
        self.options = options

class Rest(Base):
    def __init__(self, a, *rest): ...

@dataclass
class Made:
    size: int

class Decorated:
    @wraps(Base.__init__)
    def __init__(self, size): ...

class New:
    def __new__(cls, *args): ...

class Meta(metaclass=T): ...

class Conditional:
    if T:
        def __init__(self, a): ...

class Unknown(other.Base): ...

class UnknownWithOwn(other.Base):
    def __init__(self, a): ...

class Typed(Generic[T], Base): ...

class Mixin:
    def help(self): ...

class Left(Base): ...

class Right(Base):
    def __init__(self, right): ...

class Diamond(Mixin, Left, Right): ...

class Imported(Renamed): ...

class FromStar(Star): ...

Alias = Passing

class Empty: ...

if T:
    class Twice: ...
else:
    class Twice: ...
"""


@pytest.fixture
def written(workdir: Path) -> Path:
    (workdir / "written.py").write_text(MODULE)
    (workdir / "package").mkdir()
    (workdir / "package/__init__.py").write_text("from .inner import Deep\nfrom . import inner as again\n")
    (workdir / "package/inner.py").write_text("class Deep:\n    def __init__(self, deep=1): ...\n")
    (workdir / "starred.py").write_text("class Star:\n    def __init__(self, star=1): ...\n")
    return workdir


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("Base", "size rate name"),
        ("Silent", "size rate name"),
        ("Passing", "depth size rate name"),
        ("Alias", "depth size rate name"),
        ("Setting", "rate"),  # size comes by position
        ("Typed", "size rate name"),
        ("UnknownWithOwn", "a"),
        ("Diamond", "right"),
        ("Imported", "deep"),
        ("FromStar", "star"),
    ],
)
def test_complete_signatures(written: Path, name: str, names: str) -> None:
    found = signature(f"written.{name}")
    assert found is not None
    assert found.is_complete
    assert list(found.parameters) == names.split()


@pytest.mark.parametrize(
    ("name", "names"), [("Popping", ""), ("Hiding", ""), ("Keeping", "a"), ("Rest", "a"), ("Empty", "")]
)
def test_arguments_that_go_somewhere_unknown(written: Path, name: str, names: str) -> None:
    found = signature(f"written.{name}")
    assert found is not None
    assert not found.is_complete
    assert list(found.parameters) == names.split()


@pytest.mark.parametrize(
    "path",
    [
        *(f"written.{name}" for name in ("Made", "Decorated", "New", "Meta", "Conditional", "Unknown", "Twice")),
        *(
            "written.T",
            "written.NoSuch",
            "written.nowhere.X",
            "written.Base.inner",
            "nosuch.Class",
            "Class",
            "a b.c",
            "",
        ),
        *("math.Class", "sys.Class", "broken.Class"),  # one without source, one that is built in, one of bad syntax
    ],
)
def test_what_the_source_does_not_tell(written: Path, path: str) -> None:
    (written / "broken.py").write_text("class Class(:")
    assert signature(path) is None


def test_required(written: Path) -> None:
    required = {
        name: [parameter.name for parameter in _parameters(f"written.{name}").values() if parameter.is_required]
        for name in ("Base", "Passing", "Setting")
    }
    assert required == {"Base": ["size"], "Passing": ["depth", "size"], "Setting": []}


@pytest.mark.parametrize("path", ["package.Deep", "package.inner.Deep", "package.again.Deep"])
def test_paths_of_one_class(written: Path, path: str) -> None:
    found = signature(path)
    assert found is not None
    assert found.class_path == "package.inner.Deep"


def test_a_file_that_changes_is_read_again(workdir: Path) -> None:
    (workdir / "changing.py").write_text("class A:\n    def __init__(self, a): ...\n")
    assert list(_parameters("changing.A")) == ["a"]
    (workdir / "changing.py").write_text("class A:\n    def __init__(self, a, more): ...\n")
    assert list(_parameters("changing.A")) == ["a", "more"]


def _parameters(path: str) -> dict[str, signatures.Parameter]:
    found = signature(path)
    assert found is not None, f"{path} is unknown"
    return found.parameters


def test_endless_imports(workdir: Path) -> None:
    (workdir / "one.py").write_text("from two import A\n")
    (workdir / "two.py").write_text("from one import A\n")
    (workdir / "own.py").write_text("class A(B): ...\nclass B(A): ...\nC = D\nD = C\n")
    assert signature("one.A") is None
    assert signature("own.A") is None
    assert signature("own.C") is None


def test_nothing_is_imported(workdir: Path) -> None:
    (workdir / "fatal.py").write_text("raise SystemExit('imported')\nclass A:\n    def __init__(self, a): ...\n")
    assert list(_parameters("fatal.A")) == ["a"]


LIBRARIES = ("torch.optim", "torch.optim.lr_scheduler", "lightning.pytorch.callbacks", "lightning.pytorch.loggers")


@pytest.mark.slow
def test_the_parser_finds_no_parameter_more() -> None:
    """All optimizers, schedules, callbacks, loggers and layers that are installed, and what the project has."""
    from jsonargparse._parameter_resolvers import get_signature_parameters

    project.choose("example")
    paths = [entry.path for kind in discovery.KINDS for entry in discovery.classes(kind)]
    for library in (*LIBRARIES, "lightning.pytorch.profilers", "torch.nn"):
        module = import_module(library)
        paths += [f"{library}.{name}" for name, value in vars(module).items() if inspect.isclass(value)]
    paths += ["lightning.pytorch.trainer.trainer.Trainer", "playbook.Data", "playbook.Task", "playbook.Trainer"]
    complete = 0
    for path in paths:
        found = signature(path)
        if found is None or not found.is_complete:
            continue
        module, _, name = path.rpartition(".")
        real = get_signature_parameters(getattr(import_module(module), name), None, logger=False)
        required = {parameter.name for parameter in real if parameter.default is inspect.Parameter.empty}
        assert {parameter.name for parameter in real} <= found.parameters.keys(), path
        assert {p.name for p in found.parameters.values() if p.is_required} <= required, path
        complete += 1
    assert complete > 150, f"{complete} of {len(paths)}"
