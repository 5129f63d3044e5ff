"""Fixtures for everybody: the command line in this process and in its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # tests run on the CPU, and a failed look for a GPU costs every step
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two that wait for each other lose 100 ms a step on a busy machine
os.environ.setdefault("WANDB_MODE", "offline")
# what one process compiles, another must not find half written
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # LightningCLI calls it by its former names

ROOT = Path(__file__).parent.parent
CNN_DIGITS = str(ROOT / "configs/vision/cnn-digits.yaml")
MLP_DIGITS = str(ROOT / "configs/vision/mlp-digits.yaml")
QUIET: dict[str, Any] = {  # of a Trainer
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
PUBLISHED = Path(os.environ.get("PLAYBOOK_DATA", ROOT.parent / "shared/data"))  # real data sets, a folder each
UNSAVED: dict[str, Any] = {**QUIET, "enable_checkpointing": False}


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where a published data set is not at hand."""
    reason = f"needs {name} in the folder that PLAYBOOK_DATA names"
    return pytest.mark.skipif(not (PUBLISHED / name).is_dir(), reason=reason)


@dataclass
class Result:
    """What a command left: exit code and output."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory that Python also imports from, as `python -m` does, and forgets afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


@pytest.fixture
def cli(workdir: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `python -m src …` in this process, which saves the seconds that importing torch takes."""
    from src.__main__ import main

    def run(*args: str) -> Result:
        capfd.readouterr()
        code = main([str(arg) for arg in args])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def cli_process(
    *args: str, cwd: Path, env: dict[str, str] | None = None, new_group: bool = False
) -> subprocess.Popen[str]:
    """Starts `python -m src …` in a process of its own, for signals, start-up and what a fresh interpreter does."""
    return subprocess.Popen(
        [sys.executable, "-m", "src", *map(str, args)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_group,
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a module of somebody's own, for all tests of a file."""
    from tests.processes import OWN

    folder = tmp_path_factory.mktemp("own")
    (folder / "own.py").write_text(OWN)
    return folder
