"""What the repository promises about itself: its workflows, its dependencies, its files."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)
FORMS = ("bug_report", "feature_request")
# in pieces, so that this file does not name them either
REGISTRIES = re.compile("|".join(["py" + "pi", "python" + "hosted", "ana" + r"conda\.org"]), re.IGNORECASE)


def requirements(*tables: Any) -> list[str]:
    """Every requirement in lists of them, and in tables of such lists."""
    lists = [entry for table in tables for entry in (table.values() if isinstance(table, dict) else [table])]
    return sorted({text for entries in lists for text in entries if isinstance(text, str)})


CORE = requirements(PROJECT["project"]["dependencies"])
EXTRAS = requirements(PROJECT["project"].get("optional-dependencies", {}))
GROUPS = requirements(PROJECT["dependency-groups"])


def test_workflow_runs_the_tests_on_three_systems_and_three_pythons_and_lint_once() -> None:
    lint, tests = _yaml(".github/workflows/ci.yml")["jobs"].values()
    matrix = tests["strategy"]["matrix"]
    assert sorted(system.partition("-")[0] for system in matrix["system"]) == ["macos", "ubuntu", "windows"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={matrix['python'][0]}"
    assert "bash .ci/run tests" in [step.get("run") for step in tests["steps"]]
    assert "bash .ci/run lint" in [step.get("run") for step in lint["steps"]]
    assert "strategy" not in lint
    assert tests["defaults"]["run"]["shell"] == "bash", "Windows would take PowerShell"


@pytest.mark.parametrize("name", ["ci", "review", "release", "weekly"])
def test_workflow_is_bounded(name: str) -> None:
    workflow = _yaml(f".github/workflows/{name}.yml")
    assert workflow["permissions"]["contents"] == "read"
    assert workflow["concurrency"]["group"] == f"{name}-${{{{ github.ref }}}}"
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


def test_release_tests_both_wheels_and_publishes_tags_alone() -> None:
    build, publish = _yaml(".github/workflows/release.yml")["jobs"].values()
    commands = "\n".join(step.get("run", "") for step in build["steps"])
    assert "uv build --all-packages" in commands
    assert "bin/python -m pytest" in commands
    assert publish["needs"] == "build"
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["permissions"] == {"id-token": "write"}, "a trusted publisher needs no stored token"


def test_one_version_everywhere() -> None:
    import playbook
    import torchdoctor

    version = PROJECT["project"]["version"]
    tables = [_toml(f"packages/{name}/pyproject.toml")["project"] for name in ("playbook", "torchdoctor")]
    assert [playbook.__version__, torchdoctor.__version__, *(table["version"] for table in tables)] == [version] * 4
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for project in (PROJECT["project"], *tables):
        assert project["urls"].keys() >= {"Homepage", "Changelog", "Issues"}


def test_actions_are_pinned_by_commit_with_their_version_beside() -> None:
    """A tag can be moved to other code; Dependabot reads the version from the comment."""
    lines = [
        line.strip()
        for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert lines
    pinned = r"(- )?uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert not [line for line in lines if not re.fullmatch(pinned, line)]


def test_dependabot_looks_weekly() -> None:
    updates = _yaml(".github/dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
    assert {update["schedule"]["interval"] for update in updates} == {"weekly"}


@pytest.mark.parametrize("name", FORMS)
def test_issue_form_can_be_filled_in(name: str) -> None:
    form = _yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] in ("textarea", "input", "dropdown", "checkboxes")]
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids)) == len(form["body"])
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_issue_chooser_parses() -> None:
    assert isinstance(_yaml(".github/ISSUE_TEMPLATE/config.yml")["blank_issues_enabled"], bool)


def test_versions_of_hooks_are_fixed_in_pyproject_alone() -> None:
    repositories = _yaml(".pre-commit-config.yaml")["repos"]
    assert {repository["repo"] for repository in repositories} == {"local"}
    entries = " ".join(hook["entry"] for repository in repositories for hook in repository["hooks"])
    for tool in ("ruff check", "ruff format", "pyright"):
        assert f"uv run --group lint {tool}" in entries


@pytest.mark.parametrize("requirement", sorted({*CORE, *EXTRAS, *GROUPS}))
def test_dependency_has_a_lower_bound_with_a_reason(requirement: str) -> None:
    parsed = Requirement(requirement)
    operators = {specifier.operator for specifier in parsed.specifier}
    is_member = parsed.name in PROJECT["tool"]["uv"]["sources"]  # of the workspace, as it is there
    assert is_member or operators & {">=", "==", "~="}, f"{requirement} has no lower bound"
    tables = PYPROJECT.partition("\n[tool.")[0]
    lines = [line for line in tables.splitlines() if f'"{requirement}"' in line]
    bare = [line for line in lines if not line.partition("#")[2].strip()]
    assert lines, f"{requirement} stands on no line of its own"
    assert not bare, f"no comment says why: {bare}"


def test_core_stays_small() -> None:
    assert PROJECT["tool"]["uv"]["default-groups"] == []
    core = {Requirement(text).name.lower() for text in CORE}
    extras = {Requirement(text).name.lower() for text in EXTRAS}
    assert core & extras == {"lightning-playbook"}  # whose own extras are named


def test_no_file_names_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{text[: match.start()].count(chr(10)) + 1}: {match[0]}"
        for path, text in _texts()
        for match in REGISTRIES.finditer(text)
    ]
    assert not found


def test_no_file_holds_the_path_of_this_checkout() -> None:
    spellings = {str(ROOT), ROOT.as_posix(), str(ROOT).replace("\\", "\\\\")}
    found = [path.relative_to(ROOT).as_posix() for path, text in _texts() if any(name in text for name in spellings)]
    assert not found


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def _toml(path: str) -> Any:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def _texts() -> list[tuple[Path, str]]:
    """Text files that Git tracks, or would if asked to add everything."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("asks Git which files belong to the project")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, encoding="utf-8").stdout
    paths = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    contents = [(path, path.read_bytes()) for path in paths]
    return [(path, data.decode(errors="replace")) for path, data in contents if b"\0" not in data]
