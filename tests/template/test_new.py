"""`new` writes files that run, pass their tests and keep the style."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from playbook.verbs import new
from tests.conftest import ROOT

# for each kind, the name that is given, and the files and class that come of it
NEW = {
    "net": (
        "TinyNet",
        ["src/nets/vision/tiny_net.py", "tests/nets/vision/test_tiny_net.py", "configs/vision/tiny_net-digits.yaml"],
    ),
    "task": ("focus", ["src/tasks/focus.py", "tests/tasks/test_focus.py", "configs/vision/focus-digits.yaml"]),
    "data": (
        "my-table",
        ["src/data/tables/my_table.py", "tests/data/tables/test_my_table.py", "configs/tables/my_table.yaml"],
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as somebody has it who works in it."""
    for folder in ("src", "configs", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}  # not the coverage of CI
    command = [sys.executable, *args]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )


def train_and_test(copy: Path, kind: str) -> None:
    """What `new` tells its user to do next; then the tests that find the new files by themselves."""
    name, (module, _, recipe) = NEW[kind]
    written = python(copy, "-m", "src", "new", kind, name)
    assert written.returncode == 0, written.stderr
    few = ("--trainer.max_epochs", "2", "--trainer.limit_train_batches", "4", "--run_dir", "run")
    trained = python(copy, "-m", "src", "fit", "--config", recipe, *few)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "Results" in trained.stdout, trained.stdout
    stem = Path(module).stem
    tests = (f"tests/{Path(module).parts[1]}", "tests/test_conventions.py", "-k", f"{stem} or {name}")
    tested = python(copy, "-m", "pytest", "-vv", "-rs", *tests)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    for test in (f"test_{stem}.py::", f"[{module}]"):
        assert test in tested.stdout, tested.stdout
    assert f"{recipe} is not measured yet: its header states no result" in tested.stdout


@pytest.mark.slow
def test_a_new_net_trains_and_the_matrix_over_all_nets_takes_it(copy: Path) -> None:
    train_and_test(copy, "net")
    assert "TinyNet" in python(copy, "-m", "src", "list", "nets").stdout


@pytest.mark.slow
def test_a_new_task_trains(copy: Path) -> None:
    train_and_test(copy, "task")


@pytest.mark.slow
def test_a_new_data_set_trains_and_names_a_root_that_is_missing(copy: Path) -> None:
    train_and_test(copy, "data")
    recipe = NEW["data"][1][2]
    wrong = python(copy, "-m", "src", "fit", "--config", recipe, "--data.root", "nowhere.csv", "--run_dir", "wrong")
    assert wrong.returncode == 2
    assert wrong.stderr.strip().startswith("error: --data.root: nowhere.csv: no such file; expected a CSV file")


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed; it comes with --group lint")
@pytest.mark.parametrize("length", [3, new.LONGEST_NAME])
@pytest.mark.slow
def test_what_is_written_keeps_the_style(copy: Path, length: int) -> None:
    for kind in NEW:
        written = python(copy, "-m", "src", "new", kind, kind[0] + "z" * (length - 1))
        assert written.returncode == 0, written.stderr
    sources = [str(path) for path in copy.rglob("*[ntd]zz*.py")]
    assert len(sources) == 6, sources
    for command in (["check", "--no-cache"], ["format", "--no-cache", "--diff"]):
        checked = python(copy, "-m", "ruff", *command, *sources)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_new_answers_without_torch(copy: Path) -> None:
    code = (
        "import sys; from playbook.command.main import run; run(['new', 'net', 'TinyNet'], 'src'); print(*sys.modules)"
    )
    loaded = python(copy, "-c", code).stdout.split()
    assert "playbook.verbs.new" in loaded
    assert not {"torch", "lightning", "jsonargparse", "numpy"} & set(loaded)
