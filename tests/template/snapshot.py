"""The repository as a template: a copy of its files with a history of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

DOMAINS = yaml.safe_load((ROOT / "copier.yml").read_text(encoding="utf-8"))["domains"]["choices"].values()
AUTHOR = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *args: str) -> str:
    """Runs Git in a folder, without the settings of this machine, and returns what it prints."""
    environment = {**os.environ, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *args], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"git {' '.join(args)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_of_repository(folder: Path) -> None:
    """Copies the files that Git tracks, or would if asked to add everything, and commits them as v1.0.0."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("asks Git which files belong to the project")
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Start")
    git(folder, "tag", "v1.0.0")
    git(folder, "gc", "--quiet")  # Copier looks at each of a thousand loose objects


def commit(folder: Path, message: str) -> None:
    """Commits everything."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def new_project(template: Path, folder: Path, *domains: str) -> None:
    """Runs `copier copy` with answers, and commits what it writes."""
    from copier import run_copy

    answers = {"project_name": "my-project", "domains": list(domains)}
    run_copy(str(template), folder, data=answers, defaults=True, vcs_ref="HEAD", quiet=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Start from the template")
