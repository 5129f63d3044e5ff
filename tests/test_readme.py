"""Every command in README.md and CONTRIBUTING.md runs, in order, as it stands there."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Cli, cli_process

DOCUMENTS = ("README.md", "CONTRIBUTING.md")
SETUP = "pip install uv && "
TESTS = "uv run --group test pytest"


def commands(document: str) -> list[str]:
    """Lines of the sh blocks, and those behind a $ of the console blocks."""
    found = []
    for kind, block in re.findall(r"```(sh|console)\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.S):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        found += lines if kind == "sh" else [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return found


def arguments(command: str) -> list[str]:
    """What follows `python -m src`; the environment that the tests run in stands for the one that uv makes."""
    words = shlex.split(command.removeprefix(SETUP))
    while words[:2] == ["uv", "run"] or words[0] in ("--group", "--extra"):
        words = words[2:]
    assert words[:3] == ["python", "-m", "src"], command
    return words[3:]


def test_the_readme_begins_with_the_two_commands() -> None:
    assert commands("README.md")[:2] == [
        "pip install uv && uv run python -m src fit --config configs/vision/cnn-digits.yaml",
        TESTS,
    ]
    assert TESTS in (ROOT / ".ci/run").read_text(), "CI runs the README's test command"


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.slow
def test_commands(cli: Cli, workdir: Path, document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "configs", workdir / "configs")
    monkeypatch.setenv("WANDB_MODE", "offline")
    ran = 0
    for command in commands(document):
        if "python -m src" in command and " new " not in command:
            done = cli(*arguments(command))
            assert done.code == 0, f"{command}\n{done.err}"
            ran += 1
    assert ran >= 3


@pytest.mark.parametrize("document", DOCUMENTS)
def test_tools_named_are_those_of_ci(document: str) -> None:
    """pytest, ruff and pyright are not run inside of pytest; they are what .ci/run runs, or a part of it."""
    script = (ROOT / ".ci/run").read_text()
    for command in commands(document):
        if "python -m src" not in command:
            known = [line for line in script.splitlines() if line.startswith("uv run") and command.startswith(line)]
            assert known, f"{command}: not in .ci/run"
            for path in re.findall(r"\S+\.py", command):
                assert (ROOT / path).is_file(), f"{command}: {path} does not exist"


@pytest.mark.slow
def test_new_as_documented(tmp_path: Path) -> None:
    """`new` writes into its own project, so it runs in a copy."""
    for name in ("src", "playbook", "configs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    documented = [command for command in commands("CONTRIBUTING.md") if " new " in command]
    assert documented
    for command in documented:
        process = cli_process(*arguments(command), cwd=tmp_path, env={"PYTHONPATH": ""})
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        shown = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        assert out.strip() in shown, "the guide shows what the command prints"
    recipe = re.search(r"configs/\S+\.yaml", out)
    assert recipe is not None
    fit = [sys.executable, "-m", "src", "fit", "--config", recipe[0], "--trainer.max_epochs", "1"]
    subprocess.run(fit, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
