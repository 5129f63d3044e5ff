"""The user's files by their imports: of the machine its face alone, and no arrow that runs back up."""

import pytest

from playbook.testing import imports
from tests.conftest import ROOT

FOLDER = ROOT / "src"
FILES = imports.modules(FOLDER)
# from the bottom up; a file belongs to the longest name that it begins with, and imports from lower layers or its own
LAYERS = [["src.ops"], ["src.nets", "src.data"], ["src.tasks"], ["src.callbacks"], ["src.estimators"], ["src.__main__"]]
DOMAINS = {path.name for path in FOLDER.glob("*/*") if (path / "__init__.py").is_file()}
ARROWS = {name: others - {"src"} for name, others in imports.graph(FOLDER).items() if name != "src"}


@pytest.mark.parametrize("name", FILES)
def test_the_machine_is_imported_by_its_face(name: str) -> None:
    inner = {other for other in imports.imported(FILES[name], FILES) if other.startswith(("playbook.", "torchdoctor"))}
    assert not inner, "expected: from playbook import …"


def domain_of(name: str) -> str | None:
    """The domain of src.nets.vision.cnn is vision; files that several domains share have none."""
    parts = name.split(".")
    return parts[2] if len(parts) > 2 and parts[2] in DOMAINS else None


@pytest.mark.parametrize("name", [name for name in FILES if name != "src"])
def test_a_domain_can_be_deleted(name: str) -> None:
    """No file imports one of another domain, and what domains share imports none of theirs."""
    others = {domain_of(other) for other in ARROWS[name]} - {None, domain_of(name)}
    assert not others, f"imports files of {', '.join(sorted(map(str, others)))}"


def test_no_arrow_runs_back_up() -> None:
    assert not imports.upward(ARROWS, LAYERS)


def test_there_is_no_circle() -> None:
    assert not imports.circle(ARROWS)
