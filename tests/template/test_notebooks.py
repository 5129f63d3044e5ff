"""Notebooks run from top to bottom in a fresh kernel, show what they say, and are stored without outputs."""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  builds the font cache here, else its notice lands in a notebook
import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from nbclient import NotebookClient

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FIRST_RUN = ROOT / "notebooks" / "01-first-run.ipynb"


@dataclass
class Executed:
    """An executed notebook, and what it left where it ran."""

    notebook: nbformat.NotebookNode
    new_files: set[str]
    temporary_files: set[str]

    @property
    def outputs(self) -> list[nbformat.NotebookNode]:
        return [output for cell in self.notebook.cells for output in cell.get("outputs", [])]

    @property
    def printed(self) -> str:
        return "".join(output.text for output in self.outputs if output.output_type == "stream")


def test_there_are_notebooks() -> None:
    assert FIRST_RUN in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_stored_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(notebook)
    for cell in notebook["cells"]:
        saved = [name for name in ("outputs", "execution_count") if cell.get(name)]
        assert not saved, f"{cell['id']}: {', '.join(saved)} stored"
        assert not cell["metadata"], f"{cell['id']}: {cell['metadata']}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_metadata_names_no_machine(path: Path) -> None:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    assert metadata == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert path.stat().st_size < 50_000


@pytest.mark.parametrize("folder", [".", "notebooks"])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_first_cell_finds_the_project(path: Path, folder: str) -> None:
    cells = nbformat.read(path, as_version=4).cells
    first = next(cell.source for cell in cells if cell.cell_type == "code")
    # -P leaves the working directory out of sys.path, as a kernel may
    command = [sys.executable, "-P", "-c", f"{first}\nimport src\nprint(src.__path__[0])"]
    done = subprocess.run(command, check=False, cwd=ROOT / folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).samefile(ROOT / "src")


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """Each notebook, executed in a copy of the project, where anything left behind shows."""
    return _execute(request.param, tmp_path_factory.mktemp(request.param.stem))


@pytest.mark.slow
def test_prints_no_warning(executed: Executed) -> None:
    errors = [output.text for output in executed.outputs if output.get("name") == "stderr"]
    assert not errors, "".join(errors)
    for word in ("Warning", "Tip:", "━"):
        assert word not in executed.printed, executed.printed


@pytest.mark.slow
def test_leaves_nothing_behind(executed: Executed) -> None:
    assert executed.new_files == set()
    assert executed.temporary_files == set()


@pytest.mark.slow
@pytest.mark.parametrize("executed", [FIRST_RUN], indirect=True, ids=[FIRST_RUN.stem])
def test_first_run_shows_its_mistakes(executed: Executed) -> None:
    [picture] = [output.data["image/png"] for output in executed.outputs if "image/png" in output.get("data", {})]
    grey = plt.imread(io.BytesIO(base64.b64decode(picture)))[..., :3].mean(axis=-1)  # (H, W)
    rows = [np.array_split(row, 6, axis=1) for row in np.array_split(grey, 2)]
    # the upper 40 % of a panel are its title
    variances = [panel[int(0.4 * len(panel)) :].var() for row in rows for panel in row]
    shown = sum(variance > 0.02 for variance in variances)
    wrong, _ = _mistakes(executed.printed)
    assert shown == min(12, wrong), [f"{variance:.3f}" for variance in variances]


@pytest.mark.slow
@pytest.mark.parametrize("executed", [FIRST_RUN], indirect=True, ids=[FIRST_RUN.stem])
def test_first_run_prints_consistent_numbers(executed: Executed) -> None:
    printed = executed.printed
    in_python, recorded, of_checkpoint = re.findall(r"^test/accuracy (\d\.\d{6})\b", printed, flags=re.MULTILINE)
    wrong, total = _mistakes(printed)
    assert float(in_python) == pytest.approx(1 - wrong / total, abs=1e-6)
    assert float(in_python) > 0.8, "five epochs teach the digits"
    assert of_checkpoint == recorded
    cards = re.findall(r"^Results .* test ([\d.]+)", printed, flags=re.MULTILINE)
    assert cards == [f"{float(recorded):.4g}"], printed
    *_, trained, loaded = re.findall(r"CNN, [\d,]+ parameters", printed)
    assert loaded == trained


def _mistakes(printed: str) -> tuple[int, int]:
    found = re.search(r"^(\d+) of (\d+) test images are classified wrongly", printed, flags=re.MULTILINE)
    assert found, printed
    return int(found[1]), int(found[2])


def _execute(path: Path, folder: Path) -> Executed:
    project, temporary = folder / "project", folder / "temporary"
    temporary.mkdir()
    for name in ("src", "configs", "notebooks"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy(ROOT / "pyproject.toml", project)
    before = _files(project)
    # the copy's source is not the one whose coverage is measured, and pictures need the notebook's own backend
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "MPLBACKEND"))}
    environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    environment["IPYTHONDIR"] = str(folder / "ipython")  # not the user's startup files and history
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")  # torch makes it when it is imported
    environment["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm's, without ipywidgets, which Jupyter brings
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(project / "notebooks")}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute(env=environment)
    return Executed(notebook, _files(project) - before, _files(temporary))


def _files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}
