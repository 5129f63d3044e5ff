"""The machine by its imports: nothing of the user's, no arrow that runs back up, no circle."""

import re
from pathlib import Path

import playbook
from playbook.testing import imports

FOLDER = Path(playbook.__file__).parent
FILES = imports.modules(FOLDER)
# from the bottom up; a file belongs to the longest name that it begins with, and imports from lower layers or its own
LAYERS = [
    [
        "playbook.errors",
        "playbook.block",
        "playbook.renamed",
        "playbook.seeding",
        "playbook.network",
        "playbook.batches",
        "playbook.calls",
        "playbook.charts",
        "playbook.results",
        "playbook.facts",
        "playbook.lazy",
        "playbook.metrics",
    ],
    [
        "playbook.project",
        "playbook.processes",
        "playbook.tensor_parallel",
        "playbook.parallel",
        "playbook.from_data",
        "playbook.training.lightning",
    ],
    ["playbook.from_data"],
    ["playbook.runs"],
    ["playbook.optim"],
    ["playbook.checkpoints"],
    ["playbook.task", "playbook.data"],
    ["playbook.training"],
    ["playbook.insight", "playbook.deploy"],
    ["playbook.command"],
    ["playbook.verbs"],
    ["playbook.testing"],
]
COPIED = "playbook.deploy.runtime"  # into every exported model, where there is no Playbook
FACE = {"playbook", "playbook.__main__"}  # names everything, loads it when it is used, and is imported by none below
PACKAGES = {name for name, file in FILES.items() if file.name == "__init__.py"}
ARROWS = {
    name: {other for other in others if other not in PACKAGES or other == COPIED}
    for name, others in imports.graph(FOLDER).items()
    if name not in FACE
}


def test_nothing_of_a_project_is_imported() -> None:
    for name, file in FILES.items():
        assert not {other for other in imports.imported(file, FILES) if other.partition(".")[0] == "src"}, name
        assert not re.search(r"import_module\([f\"']+src\b", file.read_text(encoding="utf-8")), name


def test_one_file_calls_the_reviewer() -> None:
    callers = {
        name
        for name, file in FILES.items()
        if any(other.partition(".")[0] == "torchdoctor" for other in imports.imported(file, FILES))
    }
    assert callers == {"playbook.insight.review"}


def test_no_arrow_runs_back_up() -> None:
    assert not imports.upward(ARROWS, LAYERS)


def test_there_is_no_circle_of_files_or_of_folders() -> None:
    assert not imports.circle(ARROWS)
    assert not imports.circle(imports.between_rooms(ARROWS, [prefix for prefixes in LAYERS for prefix in prefixes]))


def test_a_circle_would_be_seen() -> None:
    assert imports.circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert imports.upward({"a": {"b"}, "b": set()}, [["a"], ["b"]]) == ["a → b"]
    assert imports.upward({"a": {"x"}}, [["a"]]) == ["a → x"]


def test_what_is_copied_into_exported_models_imports_nothing_of_ours() -> None:
    copied = {name: file for name, file in FILES.items() if name.startswith(COPIED)}
    assert copied
    for name, file in copied.items():
        assert not {other for other in imports.imported(file, FILES) if other.partition(".")[0] == "playbook"}, name
