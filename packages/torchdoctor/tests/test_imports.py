"""What the reviewer imports: torch, Lightning and little else, and no circle of its own files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import torchdoctor

FOLDER = Path(str(torchdoctor.__path__[0]))
FILES = {
    ".".join(file.relative_to(FOLDER.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(FOLDER.rglob("*.py"))
}
ROOMS = ("running", "evidence", "probes", "advice", "scripts", "repairs", "formats")  # none imports a later one
ALLOWED = {"lightning", "numpy", "torch", "torchdoctor", "torchmetrics", "yaml"}
LIGHT = "import sys, torchdoctor.cli; print(*{'torch', 'lightning', 'numpy', 'yaml'} & set(sys.modules))"


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & FILES.keys()
            names |= inner or {str(node.module)}
    return names


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_imported_but_what_the_package_requires(name: str) -> None:
    """It works on any LightningModule, in anybody's project."""
    tops = {other.partition(".")[0] for other in imported(FILES[name])}
    assert not tops - ALLOWED - sys.stdlib_module_names


def test_options_are_read_before_torch_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert not done.stdout.strip(), "mistakes and --help must come at once"


def test_there_is_no_circle() -> None:
    arrows = {name: imported(file) & FILES.keys() - {"torchdoctor"} for name, file in FILES.items()}
    while ends := {name for name, others in arrows.items() if not others}:
        arrows = {name: others - ends for name, others in arrows.items() if name not in ends}
    assert not arrows


def test_no_room_imports_a_later_one() -> None:
    def room(name: str) -> int:
        return ROOMS.index(part) if (part := name.split(".")[1]) in ROOMS else -1

    inner = {
        name: imported(file) & FILES.keys() - {"torchdoctor"} for name, file in FILES.items() if name.count(".") > 1
    }
    arrows = [(name, other) for name, others in inner.items() for other in others if room(other) > room(name)]
    assert not arrows
