"""The oldest versions that pyproject.toml allows: the quick tests pass with them."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from environments import execute, programs_of
from programs import needs_fork

CHECKOUT = Path(__file__).parents[1]
NEEDED = ("torchdoctor", "tests", "pyproject.toml", "README.md", "LICENSE")
PAIR = ("torch", "lightning")  # of the others, an old release may have no wheel for this Python
DOWNLOAD_S, TESTS_S = 900.0, 600.0
VERSIONS = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"

pytestmark = [
    needs_fork,
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.skipif(not (CHECKOUT / "torchdoctor").exists(), reason="tests the package in its checkout"),
]


def lowest() -> list[str]:
    """The lower bounds of the pair, as pyproject.toml writes them."""
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    bounds = dict(re.findall(r"^(\w+)>=([\d.]+)", "\n".join(declared), re.MULTILINE))
    return [bounds[name] for name in PAIR]


def installed(python: Path) -> list[str]:
    """The versions of the pair, without a last .0 that the bounds do not have."""
    versions = execute([python, "-c", VERSIONS, *PAIR], python.parent).out.split()
    return [version.partition("+")[0].removesuffix(".0") for version in versions]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Python in a fresh environment of the oldest versions: from uv's cache if it has them all, else downloaded."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed, which makes the environment")
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    environment = tmp_path / "environment"
    python = programs_of(environment) / "python"
    choice = ["--no-build", "--resolution", "lowest-direct", "--requirements", "pyproject.toml", "--group", "test"]
    error = ""
    for network in (["--offline"], []):
        created = execute(["uv", "venv", "--quiet", "--clear", "--python", sys.executable, environment], tmp_path)
        assert created.code == 0, created.err
        command = ["uv", "pip", "install", "--quiet", *network, "--python", python, *choice]
        try:
            error = execute(command, tmp_path, DOWNLOAD_S).err
        except subprocess.TimeoutExpired:
            error = f"not downloaded in {DOWNLOAD_S:g} s"
        if installed(python) == lowest():
            return python
    pair = " with ".join(f"{name} {version}" for name, version in zip(PAIR, lowest(), strict=True))
    pytest.skip(f"{pair} cannot be installed here: {' '.join(error.split())}")


def test_the_quick_tests_pass_with_the_oldest_versions(python: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in NEEDED:
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy
        copy(CHECKOUT / name, project / name)
    done = execute([python, "-m", "pytest", "--numprocesses=2", "--tb=short", "-rs"], project, TESTS_S)
    assert done.code == 0, done.out
    assert "skipped" not in done.out, done.out
