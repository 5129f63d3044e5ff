"""What the project promises about itself: its workflow, its dependencies, its files, its recipes."""

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from playbook.command import discovery
from tests.conftest import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)
SOURCES = sorted(path for root in ("playbook", "src") for path in (ROOT / root).rglob("*.py"))
RECIPES = [entry.path for entry in discovery.recipes()]
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


def test_workflow_runs_the_checks_on_three_systems_and_three_pythons() -> None:
    workflow = _yaml(".github/workflows/ci.yml")
    [job] = workflow["jobs"].values()
    matrix = job["strategy"]["matrix"]
    assert sorted(system.partition("-")[0] for system in matrix["system"]) == ["macos", "ubuntu", "windows"]
    assert matrix["python"] == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={matrix['python'][0]}"
    oldest, *_, newest = matrix["python"]
    assert f"${{PYTHONS-{oldest} {newest}}}" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    classifiers = [text.rpartition(" :: ")[2] for text in PROJECT["project"]["classifiers"] if "Python :: 3." in text]
    assert classifiers == matrix["python"]
    assert "bash .ci/run" in [step.get("run") for step in job["steps"]]
    assert job["defaults"]["run"]["shell"] == "bash", "Windows would take PowerShell"
    assert (ROOT / ".ci/run").is_file()


def test_workflow_is_bounded() -> None:
    workflow = _yaml(".github/workflows/ci.yml")
    [job] = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    assert job["timeout-minutes"] == 90


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
    operators = {specifier.operator for specifier in Requirement(requirement).specifier}
    assert operators & {">=", "==", "~="}, f"{requirement} has no lower bound"
    lines = [line for line in PYPROJECT.splitlines() if f'"{requirement}"' in line]
    bare = [line for line in lines if not line.partition("#")[2].strip()]
    assert lines, f"{requirement} stands on no line of its own"
    assert not bare, f"no comment says why: {bare}"


def test_core_stays_small() -> None:
    assert PROJECT["tool"]["uv"]["default-groups"] == []
    core = {Requirement(text).name.lower() for text in CORE}
    extras = {Requirement(text).name.lower() for text in EXTRAS}
    assert not core & extras


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_public_names_have_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    public = [node for node in ast.parse(text).body if isinstance(node, kinds) and not node.name.startswith("_")]
    silent = [f"{node.name}, line {node.lineno}" for node in public if not ast.get_docstring(node)]
    assert not silent, f"no docstring: {silent}"


def test_recipes_are_found() -> None:
    assert "configs/vision/cnn-digits.yaml" in RECIPES
    assert not [path for path in RECIPES if Path(path).parent.name in discovery.PARTIAL]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_begins_with_its_command_and_measured_result(recipe: str) -> None:
    lines = (ROOT / recipe).read_text(encoding="utf-8").splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    header = " ".join(line.lstrip("# ") for line in lines[:end])
    command = re.escape(f"python -m src fit --config {recipe}")
    assert re.search(rf"{command}(?![\w./-])", header), f"the header lacks its command: {header}"
    if re.search(r"\bNot run here, as \w+", header):  # what could not be had is said
        return
    if "Not measured yet: put" in header:  # as `new` writes it: no reason to fail, nor to pass
        pytest.skip(f"{recipe} is not measured yet: its header states no result")
    expected = {
        "a metric and its value, as in test/accuracy 0.9812": r"\b\w+/\w+ -?\d+(\.\d+)?",
        "over how many seeds, as in 3 seeds": r"\b(1 seed|([2-9]|\d{2,}) seeds)\b",
        "the hardware, as in 2 CPU cores": r"\b\d+ ([\w-]+ )?(CPU|GPU)",
    }
    missing = [what for what, pattern in expected.items() if not re.search(pattern, header)]
    assert not missing, f"the header lacks {'; '.join(missing)}"
    assert not re.search(r"\b0\.0+ ± 0\.0+\b", header), "the result is a placeholder"


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def _texts() -> list[tuple[Path, str]]:
    """Text files that Git tracks, or would if asked to add everything."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("asks Git which files belong to the project")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, encoding="utf-8").stdout
    paths = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    contents = [(path, path.read_bytes()) for path in paths]
    return [(path, data.decode(errors="replace")) for path, data in contents if b"\0" not in data]
