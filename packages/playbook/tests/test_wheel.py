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
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from playbook import __version__
from playbook.command.verb import verbs
from playbook.testing import serving
from playbook.testing.command import Result

PROJECT = Path(__file__).with_name("project")
RECIPE = "configs/vision/mlp-digits.yaml"
PYPROJECT = """\
[project]
name = "example"
version = "1"
dependencies = ["lightning-playbook[review]"]
"""
CHECKOUT = Path(__file__).parents[1]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys, uv_build; getattr(uv_build, f'build_{sys.argv[1]}')('dist')"

pytestmark = [
    pytest.mark.skipif(not (CHECKOUT / "playbook").exists(), reason="builds the package from its checkout"),
    pytest.mark.skipif(find_spec("uv_build") is None, reason="uv-build is not installed; it comes with --group test"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, with tests beside it that it must not take."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in BUILT_FROM:
        shutil.copy(CHECKOUT / name, folder)
    shutil.copytree(CHECKOUT / "playbook", folder / "playbook")
    (folder / "tests").mkdir()
    (folder / "dist").mkdir()
    shutil.copy(__file__, folder / "tests")
    return folder


def build(checkout: Path, kind: str) -> Path:
    """Builds without isolation, as there may be no network."""
    done = execute([sys.executable, "-c", BUILD, kind], checkout)
    assert done.code == 0, done.err
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
    here, reviewer = sysconfig.get_paths(), find_spec("torchdoctor")
    paths = [here["purelib"], here["platlib"]]
    paths += [str(Path(place).parent) for place in (reviewer and reviewer.submodule_search_locations) or []]
    (Path(asked.out.strip()) / "dependencies.pth").write_text("\n".join(dict.fromkeys(paths)))
    command = [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    installed = execute(command, folder)
    assert installed.code == 0, installed.err
    return scripts


@pytest.fixture(scope="module")
def thin(scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of its own package and configs, trained once and exported."""
    folder = tmp_path_factory.mktemp("project") / "thin"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    done = ask(scripts, folder, "fit --config RECIPE --trainer.max_epochs 5 --run_dir run")
    assert done.code == 0, done.err
    assert "python -m example test --ckpt_path run" in done.out
    return folder


def execute(command: list[str], folder: Path) -> Result:
    """Runs a program that finds packages in its own environment and working directory alone."""
    process = start(command, folder)
    out, err = process.communicate()
    return Result(process.returncode, out, err)


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Starts what `execute` waits for."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", "")])  # holds uv-build
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=own, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace")


def ask(scripts: Path, thin: Path, command: str) -> Result:
    """What `python -m example …` answers, in which RECIPE stands for a recipe of the project."""
    return execute([str(scripts / "python"), "-m", "example", *command.replace("RECIPE", RECIPE).split()], thin)


def metadata(wheel: Path) -> Message:
    return message_from_bytes(ZipFile(wheel).read(f"lightning_playbook-{__version__}.dist-info/METADATA"))


def test_wheel_holds_all_of_the_machine_and_nothing_else(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name and not name.endswith("/")}
    folder = CHECKOUT / "playbook"
    files = {path.relative_to(CHECKOUT).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}


def test_metadata(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Name"] == "lightning-playbook"
    assert told["Version"] == __version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    assert str(told.get_payload()).lstrip().startswith("# lightning-playbook")
    requirements = [str(text) for text in told.get_all("Requires-Dist", [])]
    assert any(re.match(r"torch\b", text) for text in requirements)
    assert not [text for text in requirements if re.match(r"(pytest|ruff|uv)\b", text)]
    scripts = ZipFile(wheel).read(f"lightning_playbook-{__version__}.dist-info/entry_points.txt").decode().split("\n")
    assert "playbook = playbook:main" in scripts


def test_source_distribution_has_what_a_wheel_is_built_from(checkout: Path) -> None:
    with tarfile.open(build(checkout, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names if name}
    assert tops - {"pyproject.toml.orig"} == {*BUILT_FROM, "playbook", "PKG-INFO"}
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


ANSWERS = {  # to commands of a thin project: part of the output, and files that are there then
    "validate --ckpt_path run": ("val/accuracy 0.9", "run/metrics.json"),
    "test --ckpt_path run": ("test/accuracy 0.9", "run/metrics.json"),
    "predict --ckpt_path run": ("predictions  run/predictions/predictions.csv", "run/predictions/predictions.csv"),
    "find_lr --config RECIPE --run_dir lr": ("--model.optimizer.lr ", "lr/find_lr.png"),
    "profile --config RECIPE --remedies false --run_dir p": ("bound by ", "p/profile.html"),
    "find_batch_size --config RECIPE --max_batch_size 128 --run_dir b": ("--data.batch_size ", "b/find_batch_size.csv"),
    "doctor --config RECIPE --only missing-zero-grad,dead-units": ("nothing found",),
    "export --ckpt_path run --format torch_export --output model --speed false": ("parity ", "model/model.pt2"),
    "list": ("Classification",),
    "new net Wide": ("example/nets/wide.py", "example/nets/wide.py"),
    "schema": ('"Classification"',),
    "report run": ("run/report.html", "run/report.html"),
}


def test_every_verb_is_tried() -> None:
    assert {command.split()[0] for command in ANSWERS} | {"fit", "serve"} == set(verbs())


@pytest.mark.slow
@pytest.mark.parametrize("command", ANSWERS)
def test_a_verb_in_a_thin_project(scripts: Path, thin: Path, command: str) -> None:
    told, *files = ANSWERS[command]
    done = ask(scripts, thin, command)
    assert done.code == 0, done.out + done.err
    assert told in done.out
    for file in files:
        assert (thin / file).is_file()


@pytest.mark.slow
def test_a_thin_project_serves_its_export(scripts: Path, thin: Path) -> None:
    done = ask(scripts, thin, "export --ckpt_path run --format torch_export --output served --speed false")
    assert done.code == 0, done.err
    expected = json.loads((thin / "served/example/answer.json").read_text())
    server = start([str(scripts / "python"), "-m", "example", "serve", "served", "--port", "0"], thin)
    answer = serving.ask(server, thin / "served/example/input.npy", "application/octet-stream")
    assert answer == {"output": pytest.approx(expected["output"], rel=1e-4, abs=1e-5)}


@pytest.mark.slow
def test_doctor_reviews_a_module_of_any_project(scripts: Path, tmp_path: Path) -> None:
    """The console script imports from the working directory, as `python -m` does."""
    shutil.copy(Path(__file__).with_name("plain_module.py"), tmp_path / "my.py")
    command = [str(scripts / "playbook"), "doctor", "--model", "my.Module", "--data", "my.Data", "--format", "json"]
    done = execute([*command, "--only", "missing-zero-grad,double-softmax"], tmp_path)
    assert done.err == ""
    [finding] = json.loads(done.out)["findings"]
    assert finding["id"] == "missing-zero-grad"
    assert finding["severity"] == "critical"
    assert finding["file"].endswith("my.py")
    assert done.code == 1, "a critical defect is an error"
