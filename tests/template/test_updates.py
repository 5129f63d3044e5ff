"""A newer template arrives by copier or Git, as docs/setup.md says, beside what the user has changed."""

import shlex
from pathlib import Path

import pytest

from tests.template.documents import commands
from tests.template.snapshot import commit, copy_of_repository, git, new_project

pytestmark = pytest.mark.slow

MACHINE = "packages/playbook/playbook/errors.py"
RECIPE = "configs/vision/cnn-digits.yaml"
REMOTE = "https://github.com/lightning-playbook/playbook"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    folder = tmp_path / "template"
    folder.mkdir()
    copy_of_repository(folder)
    return folder


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path}: {old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def change(project: Path) -> None:
    """What a user does: another number, a net more, an example less."""
    replace(project / RECIPE, "batch_size: 64", "batch_size: 32")
    (project / "src/nets/vision/mine.py").write_text('"""Mine."""\n')
    (project / "src/nets/vision/resnet9.py").unlink()
    commit(project, "Change the project")


def release(template: Path) -> None:
    """A newer version of the template."""
    replace(template / MACHINE, '"""', '"""Newer. ')
    replace(template / RECIPE, "# CNN on", "# A CNN on")
    (template / "src/nets/vision/newer.py").write_text('"""Newer."""\n')
    commit(template, "Improve the template")
    git(template, "tag", "v1.1.0")


def assert_both(project: Path) -> None:
    recipe = (project / RECIPE).read_text(encoding="utf-8")
    assert "batch_size: 32" in recipe
    assert recipe.startswith("# A CNN on")
    assert "Newer. " in (project / MACHINE).read_text(encoding="utf-8")
    assert (project / "src/nets/vision/mine.py").is_file()
    assert (project / "src/nets/vision/newer.py").is_file()
    assert not (project / "src/nets/vision/resnet9.py").exists()


def run_documented(project: Path, template: Path, start: str, *, end: str = "") -> None:
    """Runs the Git commands of docs/setup.md from one to another, with the local template in place of the remote."""
    shown = commands("docs/setup.md")
    first = next(number for number, command in enumerate(shown) if command.startswith(start))
    last = next((number for number, command in enumerate(shown) if end and command.startswith(end)), first)
    for command in shown[first : last + 1]:
        words = [word.replace(REMOTE, str(template)).replace("v0.3.0", "v1.0.0") for word in shlex.split(command)]
        assert words[0] == "git"
        git(project, *words[1:])


def test_a_project_of_copier(template: Path, tmp_path: Path) -> None:
    copier = pytest.importorskip("copier", reason="needs copier, of the group test")
    project = tmp_path / "mine"
    new_project(template, project, "vision")
    change(project)
    release(template)
    copier.run_update(project, defaults=True, overwrite=True, quiet=True)
    assert_both(project)
    assert not (project / "src/nets/language").exists()


def test_a_clone(template: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(template), "mine")
    project = tmp_path / "mine"
    change(project)
    release(template)
    git(project, "config", "pull.rebase", "false")
    run_documented(project, template, "git pull")
    assert_both(project)


def test_a_project_with_a_history_of_its_own(template: Path, tmp_path: Path) -> None:
    """As "Use this template" makes it: the same files, and no commit in common."""
    project = tmp_path / "mine"
    project.mkdir()
    copy_of_repository(project)
    git(project, "tag", "--delete", "v1.0.0")
    git(project, "commit", "--quiet", "--amend", "--message", "Initial commit")
    change(project)
    release(template)
    run_documented(project, template, "git remote add", end="git merge template/main")
    assert_both(project)
