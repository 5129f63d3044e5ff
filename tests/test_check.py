"""Nothing that is right is reported before torch is imported: every config, and every command of the documents."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import project
from playbook.command import arguments
from playbook.command.check import check
from tests import test_readme
from tests.conftest import ROOT
from tests.playbook.running import model_verb

RECIPE = "configs/vision/mlp-digits.yaml"
PLAIN = ("list", "new", "schema", "update", "--help", "--version")  # answered without a model
CONFIGS = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("configs/*/*.yaml"))]


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    former = project.current()
    monkeypatch.chdir(ROOT)
    project.choose("src")
    yield
    monkeypatch.setattr(project, "_current", former)


@pytest.mark.parametrize("config", CONFIGS)
def test_configs(config: str) -> None:
    check(arguments.read(model_verb("fit"), ["--config", RECIPE, "--config", config]))
    if Path(config).parent.name == "vision":
        check(arguments.read(model_verb("fit"), ["--config", config]))


@pytest.mark.parametrize("document", test_readme.DOCUMENTS)
def test_commands(document: str) -> None:
    lines = [line for line in test_readme.commands(document) if "python -m src" in line and not line.endswith("\\")]
    checked = 0
    for verb, *args in map(test_readme.arguments, lines):
        if verb not in PLAIN and "--help" not in args and not any("tiny_net" in arg for arg in args):
            check(arguments.read(model_verb(verb), args))
            checked += 1
    assert checked > (10 if document == "README.md" else 0), document
