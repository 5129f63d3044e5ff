"""Nothing that is right is reported before torch is imported: every config, and every command of the documents."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

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


def test_the_workflow_uploads_what_the_review_finds() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/review.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["review"]["steps"]
    [command] = [step["run"] for step in steps if "run" in step]
    [upload] = [step for step in steps if "upload-sarif" in step.get("uses", "")]
    text, _, file = command.removeprefix("uv run ").replace("$RECIPE", workflow["env"]["RECIPE"]).partition(" > ")
    assert file == upload["with"]["sarif_file"]
    verb, *args = test_readme.arguments(text)
    assert args[args.index("--format") + 1] == "sarif"
    check(arguments.read(model_verb(verb), args))
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
