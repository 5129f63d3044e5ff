"""A small template in three versions, and projects made from it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

VERSIONS = ("0.1.0", "0.2.0", "0.3.0")


def git(folder: Path, *args: str) -> str:
    """Output of a git command."""
    process = subprocess.run(
        ["git", *args], cwd=folder, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
    )
    assert process.returncode == 0, f"git {' '.join(args)}: {process.stderr}"
    return process.stdout.rstrip("\n")


def isolate(patch: pytest.MonkeyPatch) -> None:
    """Leaves the settings of whoever runs the tests out, and gives commits an author."""
    patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{role}_NAME", "Maintainer")
        patch.setenv(f"GIT_{role}_EMAIL", "maintainer@localhost")


def lines(name: str, **changes: str) -> str:
    """A file of twenty lines, some of them changed: `line_3="text"`."""
    return "".join(f"{changes.get(f'line_{number}', f'{name} {number}')}\n" for number in range(1, 21))


def template(version: str) -> dict[str, str | bytes]:
    """Files of one version, by path."""
    second, third = version >= "0.2.0", version >= "0.3.0"
    task_changes = {"line_3": "second"} if second else {}
    task_changes |= {"line_18": "third"} if third else {}
    files: dict[str, str | bytes] = {
        "playbook/__init__.py": f'"""The face."""\n\n__version__ = "{version}"\n',
        "playbook/task.py": lines("task", **task_changes),
        "playbook/still.py": lines("still"),
        "playbook/picture.png": b"\0\1third" if third else b"\0\1first",
        "playbook/command/go.sh": lines("go"),
        "playbook/command/__init__.py": "",
        "tests/playbook/test_task.py": lines("test", **task_changes),
        "src/__main__.py": "import playbook\n",
        "src/nets.py": lines("net", line_5="theirs" if third else "net 5"),
        "configs/mlp.yaml": f"version: {version}\n",
        "README.md": f"# Template {version}\n",
        "CHANGELOG.md": changelog(version),
        "pyproject.toml": pyproject("torch>=2.12" if third else "torch>=2.11"),
        ".gitignore": "__pycache__/\n*.local\n",
    }
    if not second:
        files["playbook/old.py"] = lines("old")
    files["playbook/after.py" if second else "playbook/before.py"] = lines("renamed")
    if second:
        files["playbook/new.py"] = lines("new")
    return files


def changelog(version: str) -> str:
    """Everything up to a version."""
    sections = [
        f"## [{each}] - 2026-01-01\n\n### Added\n\n- What {each} brings,\n  in two lines.\n" for each in VERSIONS
    ]
    return "\n".join(["# Changelog\n", *reversed(sections[: VERSIONS.index(version) + 1])])


def pyproject(dependency: str) -> str:
    """A project file with one dependency."""
    return f'[project]\nname = "template"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["{dependency}"]\n'


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    """Writes files, and the folders that they need."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())


def commit(folder: Path, message: str = "Change") -> str:
    """Commits everything."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def make_template(folder: Path) -> Path:
    """The repository of the template: a tag for each version, and a release candidate that nobody should get."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "-b", "main")
    for version in VERSIONS:
        for path in filter(None, git(folder, "ls-files").split("\n")):
            (folder / path).unlink()
        write(folder, template(version))
        if version > "0.1.0":
            (folder / "playbook/command/go.sh").chmod(0o755)
        commit(folder, f"Release {version}")
        git(folder, "tag", f"v{version}")
    git(folder, "tag", "v0.9.0rc1", "v0.1.0")
    git(folder, "tag", "nightly", "v0.1.0")
    return folder


def make_project(folder: Path, version: str = "0.1.0") -> Path:
    """A project generated from the template: the same files in a history of its own."""
    write(folder, template(version))
    if version > "0.1.0":
        (folder / "playbook/command/go.sh").chmod(0o755)
    git(folder, "init", "--quiet", "-b", "trunk")
    commit(folder, "Start")
    return folder


def files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Content of each file of a working tree, and whether it can be executed."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts]
    return {path.relative_to(folder).as_posix(): (path.read_bytes(), os.access(path, os.X_OK)) for path in paths}


def state(folder: Path) -> tuple[str, ...]:
    """What git knows of a repository: current branch, all branches, index, differences."""
    head = (folder / ".git/HEAD").read_text() if (folder / ".git").is_dir() else ""
    return (
        head,
        git(folder, "rev-parse", "HEAD"),
        git(folder, "for-each-ref"),
        git(folder, "ls-files", "--stage"),
        git(folder, "status", "--porcelain", "--ignored"),
    )


def tree(folder: Path, revision: str) -> dict[str, str]:
    """Mode and id of each file of a commit, by path."""
    rows = (row.split("\t") for row in git(folder, "ls-tree", "-r", revision).splitlines())
    return {path: kind for kind, path in rows}


def of_machine(path: str) -> bool:
    """Whether an update replaces this file."""
    return path.startswith(("playbook/", "tests/playbook/"))


def forget_history(repository: Path, folder: Path) -> Path:
    """An unpacked folder of a repository's working tree."""
    return Path(shutil.copytree(repository, folder, ignore=shutil.ignore_patterns(".git")))
