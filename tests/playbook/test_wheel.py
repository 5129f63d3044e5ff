"""The wheel: what it holds, and a project that has nothing else of Playbook."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from playbook import __version__
from tests.playbook.running import ROOT, Result

FOLDER = Path(__file__).parent / "wheel"
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "entry_points.txt")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')('dist')"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, with tests beside it that it must not take: setuptools writes into the folder."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "playbook", folder / "playbook")
    shutil.copytree(FOLDER / "thin" / "vision", folder / "src")
    (folder / "tests").mkdir()
    shutil.copy(__file__, folder / "tests")
    return folder


def build(checkout: Path, kind: str) -> Path:
    """Builds without isolation, as there may be no network: torch brings setuptools along."""
    done = execute([sys.executable, "-c", BUILD, kind], checkout)
    assert done.code == 0, done.err
    assert "_Warning" not in done.err, done.err
    [file] = (checkout / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return build(checkout, "wheel")


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a fresh environment with the wheel; its dependencies are those of this process."""
    folder = tmp_path_factory.mktemp("environment")
    created = execute([sys.executable, "-m", "venv", str(folder)], folder)
    assert created.code == 0, created.err
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    asked = execute([str(scripts / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder)
    here = sysconfig.get_paths()
    paths = "\n".join(dict.fromkeys([here["purelib"], here["platlib"]]))
    (Path(asked.out.strip()) / "dependencies.pth").write_text(paths)
    command = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    installed = execute(command, folder)
    assert installed.code == 0, installed.err
    return scripts


@pytest.fixture(scope="module")
def thin(scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of its own package and configs, trained once."""
    folder = tmp_path_factory.mktemp("project") / "thin"
    shutil.copytree(FOLDER / "thin", folder, ignore=shutil.ignore_patterns("__pycache__"))
    recipe = "configs/digits/perceptron.yaml"
    done = execute([str(scripts / "python"), "-m", "vision", "fit", "--config", recipe, "--run_dir", "run"], folder)
    assert done.code == 0, done.err
    assert "python -m vision test --ckpt_path run" in done.out
    return folder


def execute(command: list[str], folder: Path) -> Result:
    """Runs a program that finds packages in its own environment and working directory alone."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    done = subprocess.run(
        command, check=False, cwd=folder, env=own, capture_output=True, encoding="utf-8", errors="replace"
    )
    return Result(done.returncode, done.stdout, done.stderr)


def metadata(wheel: Path) -> Message:
    return message_from_bytes(ZipFile(wheel).read(f"playbook-{__version__}.dist-info/METADATA"))


def test_wheel_holds_all_of_the_machine_and_nothing_else(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folder = ROOT / "playbook"
    files = {path.relative_to(ROOT).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}


def test_metadata(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Name"] == "playbook"
    assert told["Version"] == __version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    assert str(told.get_payload()).lstrip().startswith("# Playbook")
    requirements = [str(text) for text in told.get_all("Requires-Dist", [])]
    assert any(re.match(r"torch\b", text) for text in requirements)
    assert not [text for text in requirements if re.match(r"(pytest|ruff|setuptools)\b", text)]
    scripts = ZipFile(wheel).read(f"playbook-{__version__}.dist-info/entry_points.txt").decode().split("\n")
    assert "playbook = playbook:main" in scripts


def test_source_distribution_has_what_a_wheel_is_built_from(checkout: Path) -> None:
    with tarfile.open(build(checkout, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names if name}
    assert tops == {*BUILT_FROM, "playbook", "playbook.egg-info", "PKG-INFO", "setup.cfg"}
    assert "playbook/verbs/templates/net.py.txt" in names


@pytest.mark.slow
def test_nothing_of_the_checkout_is_imported(scripts: Path, tmp_path: Path) -> None:
    code = "import playbook; print(playbook.__file__, playbook.__version__)"
    done = execute([str(scripts / "python"), "-c", code], tmp_path)
    file, version = done.out.split()
    assert Path(file).is_relative_to(scripts.parent)
    assert version == __version__


@pytest.mark.slow
def test_console_script_is_python_m_playbook(scripts: Path, tmp_path: Path) -> None:
    for args in (["--version"], ["list"], ["--help"], ["fitt"]):
        script = execute([str(scripts / "playbook"), *args], tmp_path)
        module = execute([str(scripts / "python"), "-m", "playbook", *args], tmp_path)
        assert script == module
        assert "Traceback" not in script.err


@pytest.mark.slow
def test_a_thin_project_tests_its_run(scripts: Path, thin: Path) -> None:
    done = execute([str(scripts / "python"), "-m", "vision", "test", "--ckpt_path", "run"], thin)
    assert done.code == 0, done.err
    measured = json.loads((thin / "run/metrics.json").read_text())
    assert measured["test"]["test/accuracy"] > 0.9, measured
    assert f"{measured['test']['test/accuracy']:.4f}"[:5] in done.out


@pytest.mark.slow
def test_a_thin_project_predicts(scripts: Path, thin: Path) -> None:
    done = execute([str(scripts / "python"), "-m", "vision", "predict", "--ckpt_path", "run"], thin)
    assert done.code == 0, done.err
    assert done.out == "predictions  run/predictions/predictions.csv\n"
    assert done.err == ""


@pytest.mark.slow
def test_a_thin_project_is_reviewed(scripts: Path, thin: Path) -> None:
    recipe = "configs/digits/perceptron.yaml"
    command = [str(scripts / "python"), "-m", "vision", "doctor", "--config", recipe, "--format", "json"]
    done = execute([*command, "--only", "missing-zero-grad,double-softmax,dead-units"], thin)
    assert done.code == 0, done.out + done.err
    assert json.loads(done.out)["findings"] == []


@pytest.mark.slow
def test_a_thin_project_lists_and_adds_its_own(scripts: Path, thin: Path) -> None:
    listed = execute([str(scripts / "python"), "-m", "vision", "list"], thin).out
    assert {"Perceptron", "Recognition", "Handwriting", "configs/digits/perceptron.yaml"} <= set(listed.split())
    added = execute([str(scripts / "python"), "-m", "vision", "new", "net", "Wide"], thin)
    assert added.code == 0, added.err
    assert (thin / "vision/nets/wide.py").is_file()
    assert "Wide" in execute([str(scripts / "python"), "-m", "vision", "list", "nets"], thin).out


@pytest.mark.slow
def test_doctor_reviews_a_module_of_any_project(scripts: Path, tmp_path: Path) -> None:
    """The console script imports from the working directory, as `python -m` does."""
    shutil.copy(FOLDER / "plain" / "my.py", tmp_path)
    command = [str(scripts / "playbook"), "doctor", "--model", "my.Module", "--data", "my.Data", "--format", "json"]
    done = execute([*command, "--only", "missing-zero-grad,double-softmax"], tmp_path)
    assert done.err == ""
    [finding] = json.loads(done.out)["findings"]
    assert finding["id"] == "missing-zero-grad"
    assert finding["severity"] == "critical"
    assert finding["file"].endswith("my.py")
    assert done.code == 1, "a critical defect is an error"
