"""`update` takes a newer machine into a project; whatever the user changed is there afterwards, or nothing changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from playbook.command.main import run
from playbook.project import Project
from tests.playbook.running import ROOT, Result
from tests.playbook.update.upstream import (
    changelog,
    commit,
    files,
    forget_history,
    git,
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
REPLACED, MERGED, CONFLICT, REFUSED, NOTHING = "replaced", "merged", "conflict", "refused", "nothing"


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
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Maintainer")
            patch.setenv(f"GIT_{role}_EMAIL", "maintainer@localhost")
        return make_template(tmp_path_factory.mktemp("upstream") / "template")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project")


@pytest.fixture
def update(
    project: Path, upstream: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Update:
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


@dataclass(frozen=True)
class Edit:
    """What a user does before the updates to 0.2.0 and 0.3.0, and what comes of it.

    Args:
        files: to write; None deletes, a path renames.
        outcomes: of both updates; the second is tried only if the first succeeds.
        edits: lines that the first update names as edited.
        result: for files of the machine, what they contain after the last update that succeeded.
        act: whatever else the user does.
        uncommitted: leave it in the working tree.
    """

    files: dict[str, str | bytes | Path | None]
    outcomes: tuple[str, ...]
    edits: tuple[str, ...] = ()
    result: dict[str, str | bytes | None] | None = None
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
        act=lambda root: (root / "playbook/still.py").chmod(0o755),
    ),
    "edited here, made executable there": Edit(
        {"playbook/command/go.sh": lines("go", line_9="mine")},
        (MERGED, MERGED),
        result={"playbook/command/go.sh": lines("go", line_9="mine")},
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


@pytest.mark.parametrize("name", EDITS)
def test_edits_over_two_versions(project: Path, upstream: Path, update: Update, name: str) -> None:
    edit = EDITS[name]
    apply(edit, project)
    version = "0.1.0"
    edited = set(edit.files) | {str(content) for content in edit.files.values() if isinstance(content, Path)}
    edited |= {"playbook/still.py"} if name == "made executable" else set()
    edited |= {"playbook/after.py"} if "playbook/before.py" in edited else set()
    for step, (outcome, next_version) in enumerate(zip(edit.outcomes, ("0.2.0", "0.3.0"), strict=False)):
        files_before, state_before = files(project), state(project)
        result = update("--to", f"v{next_version}")
        assert result.code == (2 if outcome in (CONFLICT, REFUSED) else 0), result
        if step == 0:
            assert all(line in result.out for line in edit.edits), result.out
        if outcome == REPLACED:
            assert "To undo: git revert" in result.out
            assert git(project, "rev-parse", "HEAD~1") == state_before[1]
        else:
            assert files(project) == files_before
        if outcome == MERGED:
            branch = f"update-{next_version}"
            assert git(project, "for-each-ref", "--format=%(refname)", "refs/heads").split() == sorted(
                ["refs/heads/trunk", *(f"refs/heads/update-{each}" for each in ("0.2.0", next_version)[-step - 1 :])]
            ) or step == 1
            assert git(project, "rev-parse", f"{branch}~1") == git(project, "rev-parse", "HEAD")
            git(project, "merge", "--quiet", branch)
        if outcome in (CONFLICT, REFUSED):
            assert state(project) == state_before
            assert result.err.startswith("error: update: ")
            assert result.err.count("\n") == 1
            break
        version = next_version
        after, before = files(project), files_before
        assert {path: after.get(path) for path in before if not of_machine(path)} == {
            path: content for path, content in before.items() if not of_machine(path)
        }
        assert {path for path in after if not of_machine(path)} == {path for path in before if not of_machine(path)}
        has_tests = any(path.startswith("tests/") for path in before)
        new = {path: kind for path, kind in tree(upstream, f"v{version}").items() if of_machine(path)}
        got = {path: kind for path, kind in tree(project, "HEAD").items() if of_machine(path)}
        for path in (set(new) | set(got)) - edited:
            if has_tests or not path.startswith("tests/"):
                assert got.get(path) == new.get(path), path
    for path, content in (edit.result or {}).items():
        if content is None:
            assert not (project / path).exists()
        else:
            assert (project / path).read_bytes() == (content if isinstance(content, bytes) else content.encode())
    if name == "made executable":
        assert os.access(project / "playbook/still.py", os.X_OK)
    if name == "edited here, made executable there":
        assert os.access(project / "playbook/command/go.sh", os.X_OK)
    git(project, "fsck", "--strict")
    assert update("--to", f"v{version}").code in (0, 2)
