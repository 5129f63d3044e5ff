"""A package renamed from `src` to anything else trains, reads its former runs, and takes new files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MLP = "configs/vision/mlp-digits.yaml"
FEW = ("--trainer.max_epochs", "2", "--trainer.accelerator", "cpu")
FORMER_IS_NOW = """
from playbook import project
project.choose("vision")
from src.nets.mlp import MLP as Former
from vision.nets.mlp import MLP
assert Former is MLP, Former
"""


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run, after `git mv src vision`, with its imports rewritten as by sed."""
    folder = tmp_path_factory.mktemp("renamed")
    for name in ("src", "configs", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    python(folder, "-m", "src", "fit", "--config", MLP, *FEW, "--run_dir", "former")
    (folder / "src").rename(folder / "vision")
    for path in [*(folder / "vision").rglob("*.py"), *(folder / "tests").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        changed = re.sub(r"\b(from|import) src\b", r"\1 vision", text)
        path.write_text(changed, encoding="utf-8", newline="\n")
    return folder


def python(folder: Path, *args: str) -> str:
    """What a program prints that must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}  # not the coverage of CI
    command = [sys.executable, *args]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_is_trained_tested_and_predicted(renamed: Path) -> None:
    out = python(renamed, "-m", "vision", "fit", "--config", MLP, *FEW, "--run_dir", "run")
    assert "python -m vision test --ckpt_path run" in out
    assert "src." not in (renamed / "run/config.yaml").read_text()
    accuracy = json.loads((renamed / "run/metrics.json").read_text())["test"]["test/accuracy"]
    python(renamed, "-m", "vision", "test", "--ckpt_path", "run")
    assert json.loads((renamed / "run/metrics.json").read_text())["test"]["test/accuracy"] == accuracy
    python(renamed, "-m", "vision", "predict", "--ckpt_path", "run")
    assert len((renamed / "run/predictions/predictions.csv").read_text().splitlines()) == 360


@pytest.mark.slow
def test_a_run_saved_as_src_is_tested_and_continued(renamed: Path) -> None:
    metrics = renamed / "former/metrics.json"
    before = json.loads(metrics.read_text())["test"]
    assert "src.nets" in (renamed / "former/config.yaml").read_text()
    python(renamed, "-m", "vision", "test", "--ckpt_path", "former")
    assert json.loads(metrics.read_text())["test"] == before
    further = ("--ckpt_path", "last", "--trainer.max_epochs", "3")
    assert "3 epochs" in python(renamed, "-m", "vision", "fit", "--run_dir", "former", *further)


@pytest.mark.slow
def test_a_class_of_src_is_the_one_of_now(renamed: Path) -> None:
    python(renamed, "-c", FORMER_IS_NOW)


@pytest.mark.slow
def test_doctor_reviews_a_recipe(renamed: Path) -> None:
    args = ("--config", "configs/vision/mlp-digits.yaml", "--only", "missing-zero-grad,double-softmax")
    out = python(renamed, "-m", "vision", "doctor", *args, "--format", "json")
    assert json.loads(out)["findings"] == []


@pytest.mark.slow
def test_new_files_are_written_listed_and_pass_their_tests(renamed: Path) -> None:
    python(renamed, "-m", "vision", "new", "net", "TinyNet")
    assert (renamed / "vision/nets/vision/tiny_net.py").is_file()
    listed = python(renamed, "-m", "vision", "list").split()
    assert {"TinyNet", "MLP", "Classification", "Digits", "configs/vision/tiny_net-digits.yaml"} <= set(listed)
    python(
        renamed,
        "-m",
        "pytest",
        "-n0",
        "-p",
        "no:cacheprovider",
        "tests/nets/vision/test_tiny_net.py",
        "tests/nets/test_mlp.py",
    )
