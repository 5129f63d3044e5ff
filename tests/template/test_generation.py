"""`copier copy` makes a project of the chosen domains: nothing of the others is left, its tests and recipes run."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from playbook.testing.command import seldom
from tests.template.snapshot import DOMAINS, copy_of_repository, new_project

pytestmark = pytest.mark.slow
pytest.importorskip("copier", reason="needs copier, of the group lint")

RECIPES = {  # one of each domain that needs no download
    "vision": ("configs/vision/cnn-digits.yaml", "--trainer.max_epochs", "2"),
    "language": ("configs/language/gpt-python.yaml", "--config", "configs/debug/one-batch.yaml"),
    "tables": ("configs/tables/mlp-wine.yaml", "--trainer.max_epochs", "2"),
    "series": ("configs/series/dlinear-airline.yaml", "--trainer.max_epochs", "2"),
    "multimodal": ("configs/multimodal/clip-digits.yaml", "--config", "configs/debug/one-batch.yaml"),
    "audio": ("configs/audio/audiocnn-tones.yaml", "--trainer.max_epochs", "2"),
    "graphs": ("configs/graphs/sage-trees.yaml", "--trainer.max_epochs", "2"),
}
TESTED = {"vision": (), "graphs": ("-m", "unit and not slow")}  # whose tests run, and which; the largest and the least
TEXTS = (".py", ".yaml", ".yml", ".toml", ".md", ".sh")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    copy_of_repository(folder)
    return folder


def run(folder: Path, *args: str) -> str:
    """Runs Python in a project, on the packages of this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(args)}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.mark.parametrize("domain", seldom(DOMAINS, TESTED))
def test_project_of_one_domain(template: Path, tmp_path: Path, domain: str) -> None:
    project = tmp_path / "my project ü"
    new_project(template, project, domain)
    files = [path for path in project.rglob("*") if path.is_file() and ".git" not in path.relative_to(project).parts]
    own = [path for path in files if path.relative_to(project).parts[0] != "packages"]
    others = set(DOMAINS) - {domain}
    assert not [path for path in own if others & set(path.relative_to(project).parts)]
    marks = [path for path in own if path.suffix in TEXTS and re.search(r"#@@|<!--@|#\(\(", path.read_text("utf-8"))]
    assert not marks, "conditions of copier are left"
    for table in (project / "pyproject.toml", *project.glob("packages/*/pyproject.toml")):
        tomllib.loads(table.read_text(encoding="utf-8"))

    run(project, "-m", "ruff", "check")
    run(project, "-m", "ruff", "format", "--check")
    pytest_ = ("-m", "pytest", "-p", "no:cacheprovider")
    run(project, *pytest_, "--numprocesses=0", "--collect-only")  # a domain's own tests run in the repository
    run(project, "-m", "src", "fit", "--config", *RECIPES[domain], "--run_dir", "runs/first")
    run(project, "-m", "src", "validate", "--ckpt_path", "runs/first")
    if domain in TESTED:
        assert " passed" in run(project, *pytest_, "--numprocesses=2", *TESTED[domain], f"--ignore-glob=*/{domain}/*")
    assert "run mkdocs" not in run(project, "-m", "mkdocs", "build", "--quiet", "--strict")


def test_project_of_all_domains_has_every_file_of_src_and_configs(template: Path, tmp_path: Path) -> None:
    project = tmp_path / "all"
    new_project(template, project, *DOMAINS)
    for folder in ("src", "configs"):
        made, known = (
            {path.relative_to(root).as_posix() for path in (root / folder).rglob("*") if path.is_file()}
            for root in (project, template)
        )
        assert made == known
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# my-project\n")
