"""Nothing that is right is reported before torch is imported, in any command of the documents."""

from collections.abc import Iterator

import pytest
import yaml

from playbook import project
from playbook.command import arguments
from playbook.command.check import check
from playbook.testing.command import model_verb
from tests.conftest import ROOT
from tests.template import documents

PLAIN = ("list", "new", "report", "schema", "--help", "--version")  # answered without a model


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    former = project.current()
    monkeypatch.chdir(ROOT)
    project.choose("src")
    yield
    monkeypatch.setattr(project, "_current", former)


@pytest.mark.parametrize("document", documents.DOCUMENTS)
def test_commands(document: str) -> None:
    own = [name for code in documents.sources(document).values() for name in code.split()]
    for command in documents.commands(document):
        args = documents.arguments(command) or ["list"]
        named = any(arg in own or "my" in arg or arg.endswith(".py") for arg in args)
        if args[0] not in PLAIN and "--help" not in args and "|" not in command and not named:
            check(arguments.read(model_verb(args[0]), args[1:]))


def test_the_workflow_uploads_what_the_review_finds() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/review.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["review"]["steps"]
    [command] = [step["run"] for step in steps if "run" in step]
    [upload] = [step for step in steps if "upload-sarif" in step.get("uses", "")]
    text, _, file = command.replace("$RECIPE", workflow["env"]["RECIPE"]).partition(" > ")
    assert file == upload["with"]["sarif_file"]
    verb, *args = documents.arguments(text) or []
    assert args[args.index("--format") + 1] == "sarif"
    check(arguments.read(model_verb(verb), args))
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
