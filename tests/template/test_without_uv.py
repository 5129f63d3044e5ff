"""The set-up without uv, as docs/setup.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.template.documents import commands


@pytest.mark.slow
def test_the_packages_install_from_their_folders(tmp_path: Path) -> None:
    """By what pip does, without the dependencies, which are here already."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("needs uv, which stands for pip where an environment has none")
    [command] = [command for command in commands("docs/setup.md") if command.startswith("pip install ./packages")]
    packages = re.findall(r"\./packages/\w+", command)
    options = ("--quiet", "--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable)
    install = [uv, "pip", "install", *options, "--target", str(tmp_path / "site"), *packages]
    subprocess.run(install, cwd=ROOT, check=True)
    for name in ("src", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import playbook, torchdoctor; print(playbook.__file__, torchdoctor.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    for args in (["-c", code], ["-m", "src", "list", "recipes"]):
        command = [sys.executable, *args]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert args[0] == "-m" or done.stdout.count(str(tmp_path / "site")) == 2
