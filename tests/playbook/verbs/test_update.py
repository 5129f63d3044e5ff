"""`update` takes a newer machine into a project; whatever the user changed is there afterwards, or nothing changed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from playbook.command.main import run
from playbook.project import Project
from tests.playbook.running import ROOT, Result, sampled
from tests.playbook.update.upstream import (
    changelog,
    commit,
    files,
    forget_history,
    git,
    isolate,
    lines,
    make_project,
    make_template,
    of_machine,
    pyproject,
    state,
    template,
    tree,
    write,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

Update = Callable[..., Result]
REPLACED, MERGED, CONFLICT, REFUSED = "replaced", "merged", "conflict", "refused"


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """git's settings of nobody else."""
    settings = tmp_path_factory.mktemp("settings") / "gitconfig"
    settings.write_text("[user]\n\tname = Somebody\n\temail = somebody@localhost\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return settings


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch)
        return make_template(tmp_path_factory.mktemp("upstream") / "template")


@pytest.fixture(scope="module")
def fresh_project(tmp_path_factory: pytest.TempPathFactory, upstream: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch)
        return make_project(tmp_path_factory.mktemp("fresh") / "project")


@pytest.fixture
def project(tmp_path: Path, fresh_project: Path) -> Path:
    return Path(shutil.copytree(fresh_project, tmp_path / "project"))


@pytest.fixture
def update(project: Path, upstream: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Update:
    """Runs `update` in the project, or in another folder, from the template or elsewhere."""

    def run_update(*args: str, root: Path = project, source: str | Path | None = upstream) -> Result:
        capfd.readouterr()
        monkeypatch.chdir(root)
        monkeypatch.setattr(Project, "root", root)
        origin = ["--from", str(source)] if source else []
        code = run(["update", *origin, *args], "example")
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run_update


def make_executable(root: Path, path: str) -> None:
    (root / path).chmod(0o755)
    git(root, "update-index", "--chmod=+x", path)  # for systems whose files have no such bit


@dataclass(frozen=True)
class Edit:
    """What a user does before the updates to 0.2.0 and 0.3.0, and what comes of it.

    Args:
        files: to write; None deletes, a path renames.
        outcomes: of both updates; the second is tried only if the first succeeds.
        edits: lines that the first update names as edited.
        result: for files of the machine, what they contain after the last update that succeeded.
        executable: files that can be executed afterwards.
        act: whatever else the user does.
        uncommitted: leave it in the working tree.
    """

    files: dict[str, str | bytes | Path | None]
    outcomes: tuple[str, ...]
    edits: tuple[str, ...] = ()
    result: dict[str, str | bytes | None] | None = None
    executable: tuple[str, ...] = ()
    act: Callable[[Path], object] = lambda _: None
    uncommitted: bool = False


NEWEST = {"line_3": "second", "line_18": "third"}
EDITS = {
    "nothing": Edit({}, (REPLACED, REPLACED)),
    "own net": Edit({"src/nets.py": lines("mine"), "src/more/net.py": "mine\n"}, (REPLACED, REPLACED)),
    "recipes, README and dependencies": Edit(
        {"configs/mlp.yaml": "mine: 1\n", "README.md": "# Mine\n", "pyproject.toml": pyproject("torch>=3")},
        (REPLACED, REPLACED),
    ),
    "package renamed": Edit({"src/nets.py": Path("mine/nets.py"), "src/__main__.py": None}, (REPLACED, REPLACED)),
    "changelog and configs deleted": Edit({"CHANGELOG.md": None, "configs/mlp.yaml": None}, (REPLACED, REPLACED)),
    "uncommitted edits of own files": Edit(
        {"src/nets.py": lines("mine"), "src/untracked.py": "mine\n", "README.md": None},
        (REPLACED, REPLACED),
        act=lambda root: (write(root, {"src/staged.py": "mine\n"}), git(root, "add", "src/staged.py")),
        uncommitted=True,
    ),
    "file that stays the same": Edit(
        {"playbook/still.py": lines("still", line_9="mine")},
        (MERGED, MERGED),
        ("edited   playbook/still.py",),
        {"playbook/still.py": lines("still", line_9="mine")},
    ),
    "other line of a changed file": Edit(
        {"playbook/task.py": lines("task", line_10="mine")},
        (MERGED, MERGED),
        ("edited   playbook/task.py",),
        {"playbook/task.py": lines("task", line_10="mine", **NEWEST)},
    ),
    "same line as 0.2.0": Edit({"playbook/task.py": lines("task", line_3="mine")}, (CONFLICT,)),
    "same line as 0.3.0": Edit(
        {"playbook/task.py": lines("task", line_18="mine")},
        (MERGED, CONFLICT),
        result={"playbook/task.py": lines("task", line_3="second", line_18="mine")},
    ),
    "same change as 0.2.0": Edit({"playbook/task.py": lines("task", line_3="second")}, (MERGED, REPLACED)),
    "test of the machine": Edit(
        {"tests/playbook/test_task.py": lines("test", line_10="mine")},
        (MERGED, MERGED),
        ("edited   tests/playbook/test_task.py",),
        {"tests/playbook/test_task.py": lines("test", line_10="mine", **NEWEST)},
    ),
    "all tests of the machine deleted": Edit(
        {"tests/playbook/test_task.py": None}, (REPLACED, REPLACED), result={"tests/playbook/test_task.py": None}
    ),
    "deleted here, unchanged there": Edit(
        {"playbook/still.py": None}, (MERGED, MERGED), ("deleted  playbook/still.py",), {"playbook/still.py": None}
    ),
    "deleted here, changed there": Edit({"playbook/task.py": None}, (CONFLICT,)),
    "edited here, deleted there": Edit({"playbook/old.py": lines("old", line_9="mine")}, (CONFLICT,)),
    "edited here, renamed there": Edit(
        {"playbook/before.py": lines("renamed", line_9="mine")},
        (MERGED, MERGED),
        ("edited   playbook/before.py",),
        {"playbook/before.py": None, "playbook/after.py": lines("renamed", line_9="mine")},
    ),
    "renamed here, changed there": Edit(
        {"playbook/task.py": Path("playbook/mine.py")},
        (MERGED, MERGED),
        ("renamed  playbook/task.py to playbook/mine.py",),
        {"playbook/task.py": None, "playbook/mine.py": lines("task", **NEWEST)},
    ),
    "new file": Edit(
        {"playbook/mine.py": "mine\n"}, (MERGED, MERGED), ("added    playbook/mine.py",), {"playbook/mine.py": "mine\n"}
    ),
    "new file of the same name": Edit({"playbook/new.py": lines("mine")}, (CONFLICT,)),
    "the same new file": Edit({"playbook/new.py": lines("new")}, (MERGED, REPLACED), ("added    playbook/new.py",)),
    "made executable": Edit(
        {},
        (MERGED, MERGED),
        ("edited   playbook/still.py",),
        {"playbook/still.py": lines("still")},
        ("playbook/still.py",),
        act=lambda root: make_executable(root, "playbook/still.py"),
    ),
    "edited here, made executable there": Edit(
        {"playbook/command/go.sh": lines("go", line_9="mine")},
        (MERGED, MERGED),
        result={"playbook/command/go.sh": lines("go", line_9="mine")},
        executable=("playbook/command/go.sh",),
    ),
    "binary file": Edit(
        {"playbook/picture.png": b"\0\1mine"}, (MERGED, CONFLICT), result={"playbook/picture.png": b"\0\1mine"}
    ),
    "line endings of a file that stays the same": Edit(
        {"playbook/still.py": lines("still").replace("\n", "\r\n")},
        (MERGED, MERGED),
        result={"playbook/still.py": lines("still").replace("\n", "\r\n")},
    ),
    "line endings of a changed file": Edit(
        {"playbook/task.py": lines("task").replace("\n", "\r\n")},
        (MERGED, REPLACED),
        result={"playbook/task.py": lines("task", **NEWEST)},
    ),
    "spaces at the end of a line": Edit(
        {"playbook/task.py": lines("task", line_10="task 10  ")},
        (MERGED, MERGED),
        result={"playbook/task.py": lines("task", line_10="task 10  ", **NEWEST)},
    ),
    "several files at once": Edit(
        {
            "playbook/task.py": lines("task", line_10="mine"),
            "playbook/still.py": None,
            "playbook/mine.py": "mine\n",
            "src/nets.py": lines("mine"),
        },
        (MERGED, MERGED),
        ("edited   playbook/task.py", "deleted  playbook/still.py", "added    playbook/mine.py"),
        {
            "playbook/task.py": lines("task", line_10="mine", **NEWEST),
            "playbook/still.py": None,
            "playbook/mine.py": "mine\n",
        },
    ),
    "version of one's own": Edit(
        {"playbook/__init__.py": '"""The face."""\n\n__version__ = "0.1.0+mine"\n'}, (CONFLICT,)
    ),
    "uncommitted edits of the machine": Edit({"playbook/task.py": lines("mine")}, (REFUSED,), uncommitted=True),
    "uncommitted new file in the machine": Edit({"tests/playbook/mine.py": ""}, (REFUSED,), uncommitted=True),
    "uncommitted edits that git ignores": Edit(
        {"playbook/task.py": lines("mine")},
        (REFUSED,),
        act=lambda root: git(root, "update-index", "--assume-unchanged", "playbook/task.py"),
        uncommitted=True,
    ),
    "detached HEAD": Edit({}, (REFUSED,), act=lambda root: git(root, "checkout", "--quiet", "--detach")),
}


def apply(edit: Edit, root: Path) -> None:
    for path, content in edit.files.items():
        if content is None:
            (root / path).unlink()
        elif isinstance(content, Path):
            (root / content).parent.mkdir(exist_ok=True)
            (root / path).rename(root / content)
        else:
            write(root, {path: content})
    if not edit.uncommitted:
        commit(root, "Edit")
    edit.act(root)
    if not edit.uncommitted and git(root, "status", "--porcelain"):
        commit(root, "Edit")


def paths_of(edit: Edit) -> set[str]:
    """Files of the machine that may differ from the new version afterwards."""
    paths = set(edit.files) | {str(content) for content in edit.files.values() if isinstance(content, Path)}
    return paths | set(edit.result or {})


def machine_of(folder: Path, revision: str) -> dict[str, str]:
    return {path: kind for path, kind in tree(folder, revision).items() if of_machine(path)}


def own_files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {path: content for path, content in files(folder).items() if not of_machine(path)}


def expect_unchanged(result: Result, before: tuple[object, ...], after: tuple[object, ...]) -> None:
    assert result.code == 2, result
    assert result.err.startswith("error: update: ")
    assert result.err.count("\n") == 1
    assert after == before


def expect_new_version(project: Path, upstream: Path, version: str, edited: set[str], has_tests: bool) -> None:
    """Every file of the machine that was not edited is that of the version; there are no others."""
    new, present = machine_of(upstream, f"v{version}"), machine_of(project, "HEAD")
    for path in (set(new) | set(present)) - edited:
        if has_tests or not path.startswith("tests/"):
            assert present.get(path) == new.get(path), path


SAMPLE = (  # CI runs all of them
    *("nothing", "own net", "uncommitted edits of own files", "other line of a changed file", "same line as 0.2.0"),
    *("deleted here, changed there", "edited here, deleted there", "edited here, renamed there", "new file"),
    *("uncommitted edits of the machine", "detached HEAD"),
)


@pytest.mark.parametrize("name", sampled(EDITS, SAMPLE))
def test_edits_over_two_versions(project: Path, upstream: Path, update: Update, name: str) -> None:
    edit = EDITS[name]
    apply(edit, project)
    own_before, has_tests = own_files(project), (project / "tests/playbook/test_task.py").exists()
    for version, outcome in zip(("0.2.0", "0.3.0"), edit.outcomes, strict=False):
        before, head = (files(project), state(project)), git(project, "rev-parse", "HEAD")
        result = update("--to", f"v{version}")
        if outcome in (CONFLICT, REFUSED):
            expect_unchanged(result, before, (files(project), state(project)))
            break
        assert result.code == 0, result
        if outcome == REPLACED:
            assert git(project, "rev-parse", "HEAD~1") == head
        else:
            assert (files(project), git(project, "rev-parse", "HEAD")) == (before[0], head)
            assert git(project, "rev-parse", f"update-{version}~1") == head
            git(project, "merge", "--quiet", f"update-{version}")
        if version == "0.2.0":
            assert all(line in result.out for line in edit.edits), result.out
        assert own_files(project) == own_before
        expect_new_version(project, upstream, version, paths_of(edit), has_tests)
    for path, content in (edit.result or {}).items():
        present = (project / path).read_bytes() if (project / path).exists() else None
        assert present == (content.encode() if isinstance(content, str) else content), path
    assert all(os.access(project / path, os.X_OK) for path in edit.executable)
    git(project, "fsck", "--strict")


def test_the_change_log_the_dependencies_and_the_commit_are_told(project: Path, upstream: Path, update: Update) -> None:
    write(project, {"configs/mlp.yaml": "mine: 1\n"})
    commit(project)
    result = update()
    assert result.code == 0, result
    head = git(project, "rev-parse", "HEAD")
    assert (
        result.out
        == f"""\
playbook 0.1.0 → 0.3.0: v0.3.0 of {upstream}

## [0.3.0] - 2026-01-01

### Added

- What 0.3.0 brings,
  in two lines.

## [0.2.0] - 2026-01-01

### Added

- What 0.2.0 brings,
  in two lines.

pyproject.toml stays yours; the new version asks for:
  torch>=2.12  yours: torch>=2.11

Changed there as well, and left as they are here: pyproject.toml

Committed on trunk: {head[:10]}. To undo: git revert {head[:10]}
"""
    )
    newest = git(upstream, "rev-parse", "v0.3.0")
    assert git(project, "log", "-1", "--format=%B").rstrip() == (
        f"Update playbook to 0.3.0\n\nFrom version 0.1.0 to v0.3.0 ({newest[:10]}) of {upstream}."
    )
    assert git(project, "log", "-1", "--format=%an") == "Somebody"
    git(project, "revert", "--no-edit", head)
    assert tree(project, "HEAD") == tree(project, "HEAD~2")


@pytest.mark.slow
def test_an_update_in_one_step_equals_two(project: Path, tmp_path: Path, update: Update) -> None:
    write(project, {"playbook/task.py": lines("task", line_10="mine")})
    commit(project)
    other = Path(shutil.copytree(project, tmp_path / "other"))
    assert update("--to", "v0.3.0").code == 0
    git(project, "merge", "--quiet", "update-0.3.0")
    for version in ("0.2.0", "0.3.0"):
        assert update("--to", version, root=other).code == 0
        git(other, "merge", "--quiet", f"update-{version}")
    assert tree(project, "HEAD") == tree(other, "HEAD")


@pytest.mark.parametrize("edited", [False, True])
def test_the_second_update_to_a_version_has_nothing_to_do(project: Path, update: Update, edited: bool) -> None:
    if edited:
        write(project, {"playbook/task.py": lines("task", line_10="mine")})
        commit(project)
    update()
    if edited:
        git(project, "merge", "--quiet", "update-0.3.0")
    before = state(project)
    result = update()
    words = ", with edits of 1 file" if edited else ""
    assert (result.code, result.out) == (0, f"playbook/ is already version 0.3.0{words}: nothing to do\n")
    assert state(project) == before


@pytest.mark.slow
def test_an_older_version_comes_back_when_asked_for(project: Path, upstream: Path, update: Update) -> None:
    update()
    result = update("--to", "v0.1.0")
    assert result.code == 0
    assert (
        f"playbook 0.3.0 → 0.1.0 (back to an older version): v0.1.0 of {upstream}\n\nWhat you lose:\n\n## [0.3.0]"
        in (result.out)
    )
    assert "What 0.2.0 brings" in result.out
    assert "What 0.1.0 brings" not in result.out
    machine = {path: kind for path, kind in tree(upstream, "v0.1.0").items() if of_machine(path)}
    assert {path: kind for path, kind in tree(project, "HEAD").items() if of_machine(path)} == machine


@pytest.mark.slow
def test_a_machine_newer_than_the_newest_release_stays(
    project: Path, upstream: Path, tmp_path: Path, update: Update
) -> None:
    source = Path(shutil.copytree(upstream, tmp_path / "source"))
    write(source, {"playbook/task.py": lines("task", line_1="development")})
    newest = commit(source)
    result = update("--to", "main", source=source)
    assert result.code == 0
    assert git(project, "log", "-1", "--format=%s") == f"Update playbook to 0.3.0-{newest[:7]}"
    assert (project / "playbook/task.py").read_text() == lines("task", line_1="development")
    before = state(project)
    result = update(source=source)
    assert result.out == (
        "playbook/ is newer than v0.3.0, the newest release: nothing to do. To go back: --to v0.3.0\n"
    )
    assert state(project) == before


def test_without_releases_the_default_branch_is_taken(
    project: Path, upstream: Path, tmp_path: Path, update: Update
) -> None:
    source = Path(shutil.copytree(upstream, tmp_path / "source"))
    git(source, "branch", "--quiet", "-m", "main", "develop")
    for tag in git(source, "tag").split():
        git(source, "tag", "-d", tag)
    result = update(source=source)
    assert result.code == 0
    assert result.out.startswith(f"playbook 0.1.0 → 0.3.0: develop of {source}\n")


def test_the_tenth_release_is_newer_than_the_ninth(upstream: Path, tmp_path: Path, update: Update) -> None:
    source = Path(shutil.copytree(upstream, tmp_path / "source"))
    for version in ("0.10.0", "0.9.0"):
        write(source, {"playbook/__init__.py": f'__version__ = "{version}"\n'})
        commit(source)
        git(source, "tag", version)
    assert update(source=source).out.startswith("playbook 0.1.0 → 0.10.0: 0.10.0 of ")


def as_worktree(upstream: Path, folder: Path) -> str:
    repository = Path(shutil.copytree(upstream, folder / "repository"))
    git(repository, "worktree", "add", "--quiet", "--detach", str(folder / "worktree"))
    return str(folder / "worktree")


def as_clone(upstream: Path, folder: Path, *options: str, name: str = "clone") -> str:
    git(folder, "clone", "--quiet", *options, f"file://{upstream}", name)
    return str(folder / name)


def as_bundle(upstream: Path, folder: Path) -> str:
    git(upstream, "bundle", "create", "--quiet", str(folder / "template.bundle"), "HEAD", "main", "--tags")
    return str(folder / "template.bundle")


SOURCES: dict[str, Callable[[Path, Path], str]] = {
    "URL": lambda upstream, _: f"file://{upstream}",
    "worktree": as_worktree,
    "bare": lambda upstream, folder: as_clone(upstream, folder, "--bare"),
    "shallow": lambda upstream, folder: as_clone(upstream, folder, "--depth", "2"),
    "bundle": as_bundle,
    "relative path": lambda upstream, folder: os.path.relpath(upstream, folder / "project"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(project: Path, upstream: Path, tmp_path: Path, update: Update, name: str) -> None:
    write(project, template("0.2.0"))
    for path in ("playbook/old.py", "playbook/before.py"):
        (project / path).unlink()
    (project / "playbook/command/go.sh").chmod(0o755)
    write(project, {"playbook/task.py": lines("task", line_3="second", line_10="mine")})
    commit(project)
    result = update("--to", "main", source=SOURCES[name](upstream, tmp_path))
    assert result.code == 0, result
    branch = next(line.split()[-1] for line in result.out.splitlines() if line.startswith("To review"))
    git(project, "merge", "--quiet", branch)
    assert (project / "playbook/task.py").read_text() == lines("task", line_10="mine", **NEWEST)
    git(project, "fsck", "--strict")


PROJECTS: dict[str, Callable[[Path, Path], str]] = {
    "clone": lambda upstream, folder: as_clone(upstream, folder, "--branch", "v0.1.0"),
    "shallow clone": lambda upstream, folder: as_clone(upstream, folder, "--branch", "v0.1.0", "--depth", "1"),
}


@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.parametrize("name", PROJECTS)
def test_projects_that_share_history(
    upstream: Path, tmp_path: Path, update: Update, name: str, is_edited: bool
) -> None:
    root = Path(PROJECTS[name](upstream, tmp_path))
    git(root, "switch", "--quiet", "-c", "trunk")
    if is_edited:
        write(root, {"playbook/task.py": lines("task", line_10="mine")})
        commit(root)
    result = update(root=root)
    assert result.code == 0, result
    if is_edited:
        git(root, "merge", "--quiet", "update-0.3.0")
    changes = {"line_10": "mine"} if is_edited else {}
    assert (root / "playbook/task.py").read_text() == lines("task", **NEWEST, **changes)
    assert not git(root, "status", "--porcelain")
    git(root, "fsck", "--strict")


def test_a_project_in_a_folder_of_a_repository(tmp_path: Path, upstream: Path, update: Update) -> None:
    top = tmp_path / "top with spaces"
    root = top / "deep/größe"
    write(root, template("0.1.0"))
    write(top, {"playbook/other.py": "not the machine\n", "README.md": "top\n"})
    git(top, "init", "--quiet", "-b", "trunk")
    commit(top)
    before = files(top)
    assert update(root=root).code == 0
    after = files(top)
    assert {path: after[path] for path in ("playbook/other.py", "README.md")} == {
        path: before[path] for path in ("playbook/other.py", "README.md")
    }
    machine = {path: kind for path, kind in tree(upstream, "v0.3.0").items() if path.startswith("playbook/")}
    assert tree(top, "HEAD:deep/größe/playbook") == {
        path.removeprefix("playbook/"): kind for path, kind in machine.items()
    }
    assert not git(top, "status", "--porcelain")


def test_a_worktree_of_a_project(project: Path, tmp_path: Path, update: Update) -> None:
    git(project, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    before = git(project, "rev-parse", "trunk")
    assert update(root=tmp_path / "side").code == 0
    assert (tmp_path / "side/playbook/new.py").exists()
    assert git(project, "rev-parse", "trunk") == before
    assert git(project, "rev-parse", "side~1") == before


def test_windows_line_endings_in_the_working_tree_are_no_edit(
    project: Path, own_settings: Path, update: Update
) -> None:
    with own_settings.open("a") as file:
        file.write("[core]\n\tautocrlf = true\n")
    git(project, "rm", "-r", "--quiet", "--cached", ".")
    git(project, "reset", "--quiet", "--hard")
    assert b"\r\n" in (project / "playbook/task.py").read_bytes()
    result = update()
    assert "Committed on trunk" in result.out, result
    assert (project / "playbook/task.py").read_bytes() == lines("task", **NEWEST).replace("\n", "\r\n").encode()
    assert not git(project, "status", "--porcelain")


@pytest.mark.parametrize("edit", ["nothing", "other line of a changed file"])
def test_a_dry_run_changes_nothing(project: Path, update: Update, edit: str) -> None:
    apply(EDITS[edit], project)
    before = files(project), state(project), sorted(path for path in (project / ".git/objects").rglob("*"))
    result = update("--dry-run")
    assert result.code == 0
    assert "Dry run, nothing was changed." in result.out
    assert "What 0.3.0 brings" in result.out
    assert (files(project), state(project), sorted(path for path in (project / ".git/objects").rglob("*"))) == before


def test_conflicts_are_named_with_their_lines(project: Path, update: Update) -> None:
    write(
        project,
        {"playbook/task.py": "first\n" + lines("task", line_3="mine", line_18="mine"), "playbook/old.py": "x\n"},
    )
    commit(project)
    result = update()
    assert result.code == 2
    assert "Both you and the new version changed:\n  playbook/old.py\n  playbook/task.py:4,19\n" in result.out
    assert result.err == (
        "error: update: conflicts in 2 files; nothing was changed; use --on_conflict branch to resolve them with git\n"
    )


@pytest.mark.slow
def test_conflicts_can_be_left_to_git(project: Path, upstream: Path, update: Update) -> None:
    write(project, {"playbook/task.py": lines("task", line_3="mine", line_10="mine"), "src/nets.py": "mine\n"})
    head = commit(project)
    before = files(project)
    result = update("--on_conflict", "branch")
    assert result.code == 0, result
    assert (files(project), git(project, "rev-parse", "HEAD")) == (before, head)
    machine = {path: kind for path, kind in tree(upstream, "v0.3.0").items() if of_machine(path)}
    assert {path: kind for path, kind in tree(project, "update-0.3.0").items() if of_machine(path)} == machine
    pick = subprocess.run(["git", "cherry-pick", "update-0.3.0"], cwd=project, capture_output=True, check=False)
    assert pick.returncode == 1
    assert git(project, "diff", "--name-only", "--diff-filter=U") == "playbook/task.py"
    text = (project / "playbook/task.py").read_text()
    assert "<<<<<<< HEAD\nmine\n=======\nsecond\n>>>>>>> " in text
    write(project, {"playbook/task.py": lines("task", line_3="both", line_10="mine", line_18="third")})
    git(project, "add", "--all")
    git(project, "-c", "core.editor=true", "cherry-pick", "--continue")
    assert (project / "src/nets.py").read_text() == "mine\n"
    assert update().out == "playbook/ is already version 0.3.0, with edits of 1 file: nothing to do\n"


def test_everything_of_the_new_version_was_there_already(project: Path, upstream: Path, update: Update) -> None:
    git(project, "rm", "-r", "--quiet", "playbook", "tests")
    write(project, {path: text for path, text in template("0.3.0").items() if of_machine(path)})
    (project / "playbook/command/go.sh").chmod(0o755)
    write(project, {"playbook/__init__.py": '"""The face."""\n\n__version__ = "0.3.0"\n', "playbook/mine.py": "mine\n"})
    commit(project)
    assert update().out == "playbook/ is already version 0.3.0, with edits of 1 file: nothing to do\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--form x", "update: --form: no such option, expected python -m example update [--from URL_OR_PATH]"),
        ("v0.2.0", "update: v0.2.0: no such option"),
        ("--to", "update --to: expected a value, got none"),
        ("--to=", "update --to: expected a value, got none"),
        ("--dry_run=yes", "update --dry_run: expected no value, got yes"),
        ("--on_conflict brnch", "update --on_conflict brnch: expected one of stop, branch. Nearest: branch"),
        ("--to v0.2.1", "update --to v0.2.1: expected a tag, a branch or a commit of "),
        ("--to mian", "update --to mian: expected a tag, a branch or a commit of "),
        ("--to --all", "update --to --all: expected a tag, a branch or a commit of "),
        ("--to=-x", "update --to -x: expected a tag, a branch or a commit of "),
        ("--from missing", "update --from missing: expected a URL or a folder; there is no such folder"),
        ("--from --upload-pack=touch", "update --from --upload-pack=touch: expected a URL or a folder"),
        ("--from configs", "update --from configs: expected a git repository; without history"),
        ("--from ext::sh", "update --from ext::sh: transport 'ext' not allowed"),
        ("--from file:///nowhere/here", "update --from file:///nowhere/here: '/nowhere/here' does not appear to be"),
        ("--from ftp://a:secret@localhost/x", "update --from ftp://localhost/x: transport 'ftp' not allowed"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(project: Path, update: Update, args: str, message: str) -> None:
    before = files(project), state(project)
    result = update(*args.split())
    assert result.code == 2
    assert result.err.startswith(f"error: {message}")
    assert result.err.count("\n") == 1
    assert "secret" not in result.err
    assert (files(project), state(project)) == before


def test_misspelt_references_and_options_are_told_the_nearest(update: Update) -> None:
    assert update("--to", "v0.2.1").err.rstrip().endswith(". Nearest: v0.2.0, v0.9.0rc1, v0.3.0")
    assert update("--dry_rum").err.rstrip().endswith(". Nearest: --dry_run")


def test_the_source_may_stand_in_the_project_file(project: Path, upstream: Path, update: Update) -> None:
    result = update(source=None)
    assert result.code == 2
    assert result.err == (
        'error: update: expected --from URL_OR_PATH, or in pyproject.toml: [tool.playbook] source = "URL_OR_PATH"\n'
    )
    source = os.path.relpath(upstream, project)
    write(project, {"pyproject.toml": f"{pyproject('torch>=2.11')}\n[tool.playbook]\nsource = '{source}'\n"})
    commit(project)
    assert "Committed on trunk" in update(source=None).out


def test_a_project_without_project_file_names_its_source(project: Path, update: Update) -> None:
    (project / "pyproject.toml").unlink()
    assert update(source=None).err.startswith("error: update: expected --from URL_OR_PATH")
    commit(project)
    result = update()
    assert "Committed on trunk" in result.out
    assert "asks for" not in result.out


def no_playbook(source: Path) -> str:
    write(source, {"README.md": "# Other\n"})
    commit(source)
    return "has no playbook/ on its default branch; use --to"


def no_commits(source: Path) -> str:
    return "expected a repository with commits, this one is empty"


@pytest.mark.parametrize("fill", [no_playbook, no_commits])
def test_a_source_without_a_machine(project: Path, tmp_path: Path, update: Update, fill: Callable[[Path], str]) -> None:
    source = tmp_path / "other"
    source.mkdir()
    git(source, "init", "--quiet", "-b", "main")
    message = fill(source)
    before = files(project), state(project)
    assert update(source=source).err == f"error: update --from {source}: {message}\n"
    if fill is no_playbook:
        assert update("--to", "main", source=source).err == (
            "error: update --to main: has no playbook/; expected a version with this folder\n"
        )
    assert (files(project), state(project)) == before


def no_repository(root: Path) -> None:
    shutil.rmtree(root / ".git")


def no_commit(root: Path) -> None:
    no_repository(root)
    git(root, "init", "--quiet")


def no_machine(root: Path) -> None:
    shutil.rmtree(root / "playbook")


def not_committed(root: Path) -> None:
    git(root, "rm", "-r", "--quiet", "--cached", "playbook")
    git(root, "commit", "--quiet", "-m", "Take out")


def strange_machine(root: Path) -> None:
    git(root, "rm", "-r", "--quiet", "playbook", "tests")
    write(root, {"playbook/strange.py": "nothing of the template\n"})
    commit(root)


def merge_in_progress(root: Path) -> None:
    git(root, "branch", "side")
    write(root, {"README.md": "mine\n"})
    commit(root)
    git(root, "switch", "--quiet", "side")
    write(root, {"README.md": "other\n"})
    commit(root)
    subprocess.run(["git", "merge", "trunk"], cwd=root, capture_output=True, check=False)


def submodule(root: Path) -> None:
    shutil.rmtree(root / "playbook")
    git(root, "clone", "--quiet", ".", "playbook")
    git(root, "rm", "-r", "--quiet", "--cached", "playbook")
    git(root, "-c", "advice.addEmbeddedRepo=false", "add", "playbook")
    git(root, "commit", "--quiet", "-m", "Submodule")


def ignored_file_in_the_way(root: Path) -> None:
    (root / ".git/info/exclude").write_text("new.py\n")
    write(root, {"playbook/new.py": "mine\n"})


def broken_settings(root: Path) -> None:
    with (root / ".git/config").open("a") as file:
        file.write("[broken\n")


REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no repository": (
        no_repository,
        "expected a git repository, which can undo an update: git init, add and commit first",
    ),
    "no commit": (no_commit, "playbook/ is not a committed folder of this repository; commit it first"),
    "no machine": (no_machine, "there is no playbook/ in "),
    "machine not committed": (not_committed, "playbook/ is not a committed folder of this repository"),
    "submodule": (submodule, "playbook/ is not a committed folder of this repository"),
    "strange machine": (strange_machine, "has no version similar to playbook/ here; expected the template"),
    "broken settings": (broken_settings, "bad config line"),
    "merge": (merge_in_progress, "a merge is in progress; finish or abort it first"),
    "ignored file": (ignored_file_in_the_way, "playbook/new.py: this ignored file would be overwritten"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_project_that_cannot_be_updated_is_left_alone(project: Path, update: Update, name: str) -> None:
    prepare, message = REFUSALS[name]
    prepare(project)
    before = files(project)
    result = update()
    assert result.code == 2, result
    assert message in result.err
    assert result.err.startswith("error: update")
    assert files(project) == before


def test_many_changed_files_are_counted(project: Path, update: Update) -> None:
    write(project, {f"playbook/mine_{number}.py": "" for number in range(5)})
    assert update().err == (
        "error: update: uncommitted changes in playbook/mine_0.py, playbook/mine_1.py, playbook/mine_2.py and 2 more;"
        " commit or stash them first\n"
    )


def test_a_branch_of_the_name_stays(project: Path, update: Update) -> None:
    apply(EDITS["other line of a changed file"], project)
    git(project, "branch", "update-0.3.0")
    before = files(project), state(project)
    assert update().err.startswith("error: update: branch update-0.3.0 already exists")
    assert (files(project), state(project)) == before


def test_without_git(update: Update, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert update().err == "error: update: git is not installed, or not in PATH; nothing was changed\n"


@pytest.mark.skipif(os.name == "nt", reason="needs a shell script as a program")
def test_an_old_git_replaces_but_does_not_merge(
    project: Path, update: Update, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(
        f'#!/bin/sh\ncase "$*" in *version) echo git version 2.34.1;; *) exec {shutil.which("git")} "$@";; esac\n'
    )
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert update("--to", "v0.2.0").code == 0
    apply(EDITS["other line of a changed file"], project)
    assert update().err == "error: update: merging edited files needs git 2.38 or newer, this is 2.34.1\n"


def test_without_a_name_to_commit_with(project: Path, update: Update, own_settings: Path) -> None:
    own_settings.write_text("[user]\n\tuseConfigOnly = true\n")
    before = files(project), state(project)
    assert update().err.startswith("error: update: git has no name for commits")
    assert (files(project), state(project)) == before


@pytest.mark.skipif(os.name == "nt", reason="hooks here are shell scripts")
@pytest.mark.parametrize("edit", ["nothing", "other line of a changed file"])
def test_nothing_that_was_fetched_is_executed(
    project: Path, upstream: Path, tmp_path: Path, update: Update, edit: str
) -> None:
    apply(EDITS[edit], project)
    source = Path(shutil.copytree(upstream, tmp_path / "source"))
    trap = tmp_path / "executed"
    for repository in (project, source):
        for hook in (
            "post-checkout",
            "pre-commit",
            "post-commit",
            "reference-transaction",
            "post-merge",
            "post-rewrite",
        ):
            (repository / ".git/hooks").mkdir(exist_ok=True)
            (repository / ".git/hooks" / hook).write_text(f"#!/bin/sh\necho {hook} >> {trap}\n")
            (repository / ".git/hooks" / hook).chmod(0o755)
    for path in ("playbook/__init__.py", "src/__main__.py", "tests/playbook/conftest.py"):
        with (source / path).open("a") as file:
            file.write(f"open({str(trap)!r}, 'w').close()\n")
    write(source, {"playbook/.gitattributes": "*.py merge=trap filter=trap\n"})
    git(source, "config", "merge.trap.driver", f"touch {trap}")
    git(source, "config", "filter.trap.smudge", f"touch {trap}")
    git(source, "add", "--all")
    git(source, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "-m", "Trap")
    assert update("--to", "main", source=source).code == 0
    assert not trap.exists(), trap.read_text()


def test_escape_sequences_of_others_do_not_reach_the_terminal(upstream: Path, tmp_path: Path, update: Update) -> None:
    source = Path(shutil.copytree(upstream, tmp_path / "source"))
    write(source, {"CHANGELOG.md": changelog("0.3.0").replace("What 0.3.0", "What \x1b[2J 0.3.0")})
    commit(source)
    result = update("--to", "main", source=source)
    assert "What ?[2J 0.3.0 brings" in result.out


@pytest.mark.parametrize("lock", [".git/index.lock", ".git/refs/heads/trunk.lock", ".git/HEAD.lock"])
def test_a_failure_half_way_leaves_everything_as_it_was(project: Path, update: Update, lock: str) -> None:
    apply(EDITS["uncommitted edits of own files"], project)
    before = files(project), state(project)
    (project / lock).touch()
    result = update()
    assert result.code == 2
    assert result.err.rstrip().endswith("nothing was changed")
    (project / lock).unlink()
    assert (files(project), state(project)) == before


@pytest.mark.skipif(os.name == "nt", reason="the filter is a shell script")
def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(project: Path, update: Update) -> None:
    """Fails amid the files: a filter of the user's own that refuses the new text of one of them."""
    (project / ".git/info/attributes").write_text("playbook/task.py filter=broken\n")
    git(project, "config", "filter.broken.smudge", 'f=$(cat); case $f in *third*) exit 1;; esac; echo "$f"')
    git(project, "config", "filter.broken.clean", "cat")
    git(project, "config", "filter.broken.required", "true")
    apply(EDITS["uncommitted edits of own files"], project)
    before = files(project), state(project)
    result = update()
    assert result.code == 2, result
    assert "playbook/task.py: smudge filter broken failed" in result.err
    assert (files(project), state(project)) == before


def start_process(project: Path, source: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """An update in a process group of its own, which leaves its temporary files in a folder."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path\n"
        "from playbook.command.main import run; from playbook.project import Project\n"
        f"Project.root = Path.cwd(); sys.exit(run(['update', '--from', {source!r}], 'example'))"
    )
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        cwd=project,
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {path.name} after 30 s")


@pytest.mark.skipif(os.name == "nt", reason="needs process groups and a shell")
def test_ctrl_c_while_fetching_changes_nothing(project: Path, tmp_path: Path) -> None:
    started, temporary = tmp_path / "started", tmp_path / "temporary"
    temporary.mkdir()
    before = files(project), state(project)
    process = start_process(project, "ssh://localhost/x", temporary, GIT_SSH_COMMAND=f"touch {started}; sleep 60 #")
    wait_for(started, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\nstopped\n")
    assert (files(project), state(project)) == before
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs process groups and a shell")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_amid_the_replacement_come_too_late(
    project: Path, upstream: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """A slow filter of the user's own makes the replacement last long enough to interrupt it."""
    started, temporary = tmp_path / "started", tmp_path / "temporary"
    temporary.mkdir()
    (project / ".git/info/attributes").write_text("playbook/task.py filter=slow\n")
    git(project, "config", "filter.slow.clean", "cat")
    git(project, "config", "filter.slow.smudge", f"touch {started}; sleep 1; cat")
    process = start_process(project, str(upstream), temporary)
    wait_for(started, process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, ""), out
    assert "Committed on trunk" in out
    assert git(project, "log", "-1", "--format=%s") == "Update playbook to 0.3.0"
    assert not git(project, "status", "--porcelain")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(update: Update, flag: str) -> None:
    result = update(flag, source=None)
    assert result.code == 0
    assert result.out.startswith("python -m example update [--from URL_OR_PATH] [--to REF]")


def test_no_torch_is_imported(project: Path, upstream: Path) -> None:
    code = "import sys, playbook.verbs.update; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")
def test_this_repository_is_a_source(tmp_path: Path, update: Update) -> None:
    """A project made from the last commit, its machine edited, gets what one commit more brings."""
    source = tmp_path / "source"
    git(tmp_path, "clone", "--quiet", "--no-tags", str(ROOT), str(source))
    root = forget_history(source, tmp_path / "mine")
    git(root, "init", "--quiet", "-b", "trunk")
    commit(root)
    errors = (root / "playbook/errors.py").read_text()
    write(root, {"playbook/errors.py": f"{errors}\n\n# mine\n"})
    commit(root)
    with (source / "playbook/processes.py").open("a") as file:
        file.write("# theirs\n")
    newest = commit(source)
    result = update(source=source, root=root)
    assert result.code == 0, result
    assert "Your edits of version" in result.out
    git(root, "merge", "--quiet", f"update-{template_version(root)}-{newest[:7]}")
    assert (root / "playbook/errors.py").read_text().endswith("# mine\n")
    assert (root / "playbook/processes.py").read_text().endswith("# theirs\n")


def template_version(root: Path) -> str:
    text = (root / "playbook/__init__.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]
