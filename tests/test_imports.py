"""The two roots, by their imports: the users files stand on the face of the machine, and no arrow runs back up."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

# from the bottom up; a file belongs to the longest name that it begins with, and imports from lower layers or its own
LAYERS = [
    [
        "playbook.errors",
        "playbook.moved",
        "playbook.seeding",
        "playbook.network",
        "playbook.batches",
        "playbook.facts",
        "playbook.doctor",
    ],
    ["playbook.project", "playbook.processes", "playbook.parallel", "playbook.update", "playbook.training.lightning"],
    ["playbook.runs"],
    ["playbook.optim"],
    ["playbook.checkpoints"],
    ["playbook.task", "playbook.data"],
    ["playbook.training"],
    ["playbook.insight", "playbook.deploy"],
    ["playbook.command"],
    ["playbook.verbs"],
]
OWN_LAYERS = [["src.ops"], ["src.nets", "src.data"], ["src.tasks"], ["src.callbacks"], ["src.__main__"]]
COPIED = "playbook.deploy.runtime"  # into every exported model, where there is no Playbook
FACE = ["playbook", "playbook.__main__"]  # names everything, loads it when it is used, and is imported by none below


@cache
def modules(root: str) -> dict[str, Path]:
    """Files of a root by the names that they are imported by."""
    files = sorted((ROOT / root).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return dict(zip(names, files, strict=True))


@cache
def imports(module: str, file: Path) -> set[str]:
    """Modules of either root that a file imports; those inside of functions and for types alone as well."""
    known = modules("playbook") | modules("src")
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 1 and module.startswith(COPIED):
                continue
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in known else str(node.module))
    return {name for name in names if name.partition(".")[0] in ("playbook", "src")} - {module}


def graph(root: str) -> dict[str, set[str]]:
    return {name: imports(name, file) for name, file in modules(root).items() if name not in FACE}


def arrows(root: str) -> list[tuple[str, str]]:
    """Who imports whom, of all files of a root."""
    return [(name, other) for name, file in modules(root).items() for other in imports(name, file)]


@pytest.mark.slow
def test_the_machine_never_imports_what_is_the_users() -> None:
    assert not [f"{name} → {other}" for name, other in arrows("playbook") if other.partition(".")[0] == "src"]
    texts = {name: file.read_text(encoding="utf-8") for name, file in modules("playbook").items()}
    assert not [name for name, text in texts.items() if re.search(r"import_module\([f\"']+src\b", text)]


def test_the_users_files_import_the_face_alone() -> None:
    inner = [f"{name} → {other}" for name, other in arrows("src") if other.startswith("playbook.")]
    assert not inner, "expected: from playbook import …"


def test_the_review_imports_nothing_else_of_the_machine() -> None:
    review = [(name, other) for name, other in arrows("playbook") if name.startswith("playbook.doctor")]
    assert review
    assert not [f"{name} → {other}" for name, other in review if not other.startswith("playbook.doctor")]


def layer(name: str, layers: list[list[str]]) -> int:
    """The number of the longest prefix, counted from the bottom."""
    places = {
        prefix: number
        for number, prefixes in enumerate(layers)
        for prefix in prefixes
        if f"{name}.".startswith(f"{prefix}.")
    }
    assert places, f"{name} is in no layer"
    return places[max(places, key=len)]


@pytest.mark.parametrize(("root", "layers"), [("playbook", LAYERS), ("src", OWN_LAYERS)])
def test_no_arrow_runs_back_up(root: str, layers: list[list[str]]) -> None:
    packages = {root, *(name for name in modules(root) if modules(root)[name].name == "__init__.py" and name != root)}
    upward = [
        f"{name} → {other}"
        for name, others in graph(root).items()
        if name not in packages
        for other in others
        if other.partition(".")[0] == root and other not in FACE and other not in packages - {"playbook"}
        if layer(other, layers) > layer(name, layers)
    ]
    assert not upward


@pytest.mark.parametrize("root", ["playbook", "src"])
@pytest.mark.parametrize("depth", [2, 9], ids=["folders", "files"])
def test_there_is_no_circle(root: str, depth: int) -> None:
    """Neither between files nor between folders; a file that is a layer of its own counts as a folder."""
    alone = {prefix for prefixes in [*LAYERS, *OWN_LAYERS] for prefix in prefixes}

    def room(name: str) -> str:
        inner = max((prefix for prefix in alone if f"{name}.".startswith(f"{prefix}.")), key=len, default=name)
        return name if depth > 2 else inner

    arrows: dict[str, set[str]] = {}
    for name, others in graph(root).items():
        arrows.setdefault(room(name), set()).update(
            room(other) for other in others if other.partition(".")[0] == root and other not in FACE
        )
    for start in arrows:
        path, todo = {start: start}, [start]
        while todo:
            here = todo.pop()
            for other in arrows.get(here, ()):
                if other == here:
                    continue
                assert other != start, f"{start} → … → {path[here]} → {here} → {start}"
                if other not in path:
                    path[other] = here
                    todo.append(other)


@pytest.mark.slow
def test_the_machines_tests_need_nothing_of_the_users() -> None:
    files = sorted((ROOT / "tests/playbook").rglob("*.py"))
    needed = {file.relative_to(ROOT).as_posix(): imports("", file) for file in files}
    assert not {file for file, names in needed.items() if any(name.partition(".")[0] == "src" for name in names)}


def test_what_is_copied_into_exported_models_imports_nothing_of_ours() -> None:
    files = {name: file for name, file in modules("playbook").items() if name.startswith(COPIED)}
    assert files
    assert not {name: found for name, file in files.items() if (found := imports(name, file))}
