"""Nothing that is right is reported before torch is imported, in any config."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import project
from playbook.command import arguments, discovery
from playbook.command.check import check
from playbook.testing.command import model_verb
from tests.conftest import ROOT

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
    """A partial one stacks on a recipe."""
    recipe = ["--config", discovery.recipes()[0].path] if Path(config).parent.name in discovery.PARTIAL else []
    check(arguments.read(model_verb("fit"), [*recipe, "--config", config]))
