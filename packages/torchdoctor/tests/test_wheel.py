"""The wheel: what it holds, and an environment of it and the packages that it requires, in which nothing else is."""

import json
import os
import shutil
import sys
import tarfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from environments import execute, programs_of
from programs import needs_fork
from script_programs import DEFECTS, changed, written
from torchdoctor import __version__

CHECKOUT = Path(__file__).parents[1]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys, uv_build; getattr(uv_build, f'build_{sys.argv[1]}')('dist')"
REQUIRED = {"torch", "lightning", "torchmetrics", "numpy", "pyyaml"}
NEIGHBOURS = ("playbook", "src", "pytest", "sklearn", "torchvision", "wandb")  # of these tests' environment

pytestmark = [
    pytest.mark.skipif(not (CHECKOUT / "torchdoctor").exists(), reason="builds the package from its checkout"),
    pytest.mark.skipif(find_spec("uv_build") is None, reason="uv-build is not installed; it comes with --group test"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, with tests beside it that it must not take."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in BUILT_FROM:
        shutil.copy(CHECKOUT / name, folder)
    shutil.copytree(CHECKOUT / "torchdoctor", folder / "torchdoctor")
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


def metadata(wheel: Path) -> Message:
    return message_from_bytes(ZipFile(wheel).read(f"torchdoctor-{__version__}.dist-info/METADATA"))


def requirements(texts: list[str]) -> set[str]:
    """The names of those that hold here."""
    parsed = [Requirement(text) for text in texts]
    return {item.name for item in parsed if item.marker is None or item.marker.evaluate({"extra": ""})}


def link_required(wheel: Path, target: Path) -> None:
    """Links the packages that a wheel requires, and those that they require, from the environment of these tests."""
    linked: set[str] = set()
    names = requirements(metadata(wheel).get_all("Requires-Dist", []))
    while names:
        linked |= names
        installed = [distribution(name) for name in names]
        for package in installed:
            for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
                if not (target / top).exists():
                    (target / top).symlink_to(Path(str(package.locate_file(top))))
        names = set().union(*(requirements(package.requires or []) for package in installed)) - linked


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    created = execute([sys.executable, "-m", "venv", folder], folder)
    assert created.code == 0, created.err
    programs = programs_of(folder)
    asked = execute([programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder)
    command = [programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    installed = execute(command, folder)
    assert installed.code == 0, installed.err
    link_required(wheel, Path(asked.out.strip()))
    return programs


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name and not name.endswith("/")}
    folder = CHECKOUT / "torchdoctor"
    files = {path.relative_to(CHECKOUT).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "torchdoctor/py.typed" in names


def test_metadata(wheel: Path) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("torchdoctor", __version__, ">=3.11")
    assert told["License-Expression"] == "Apache-2.0"
    assert f"torchdoctor-{__version__}.dist-info/licenses/LICENSE" in ZipFile(wheel).namelist()
    assert str(told.get_payload()).lstrip().startswith("# torchdoctor\n")
    assert {Requirement(text).name for text in told.get_all("Requires-Dist", [])} == REQUIRED
    points = ZipFile(wheel).read(f"torchdoctor-{__version__}.dist-info/entry_points.txt").decode().split("\n")
    assert "torchdoctor = torchdoctor:main" in points


def test_source_distribution_has_what_a_wheel_is_built_from(checkout: Path) -> None:
    with tarfile.open(build(checkout, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names if name}
    assert tops - {"pyproject.toml.orig"} == {*BUILT_FROM, "torchdoctor", "PKG-INFO"}


ORIGINS = """
from importlib.util import find_spec
import sys

print(*(find_spec(name) is not None for name in sys.argv[1:]), find_spec("torchdoctor").origin)
"""


@pytest.mark.slow
def test_nothing_but_the_wheel_and_what_it_requires_is_importable(programs: Path, tmp_path: Path) -> None:
    done = execute([programs / "python", "-c", ORIGINS, *NEIGHBOURS], tmp_path)
    *found, origin = done.out.split()
    assert found == ["False"] * len(NEIGHBOURS)
    assert Path(origin).is_relative_to(programs.parent)


@pytest.mark.slow
def test_the_console_script_is_python_m_torchdoctor(programs: Path, tmp_path: Path) -> None:
    for args in (["--version"], ["--help"], ["--formt", "json"], ["train.py"], ["--model", "my.Module"]):
        script = execute([programs / "torchdoctor", *args], tmp_path)
        module = execute([programs / "python", "-m", "torchdoctor", *args], tmp_path)
        assert script == module
        assert script.code == (0 if args[0] in ("--version", "--help") else 2)
        assert script.err.count("\n") == (1 if script.code else 0)


@needs_fork
@pytest.mark.slow
def test_reviews_a_script(programs: Path, tmp_path: Path) -> None:
    """All of it, as nobody chooses what to look for: what a probe imports must be there."""
    written(tmp_path, changed(DEFECTS["missing-zero-grad"]))
    done = execute([programs / "torchdoctor", "--format", "json", "train.py"], tmp_path)
    assert (done.code, done.err) == (1, "")
    report = json.loads(done.out)
    assert [(item["id"], item["code"]) for item in report["findings"]] == [("missing-zero-grad", "optimizer.step()")]
    assert report["findings"][0]["file"] == str(tmp_path / "train.py")
    assert report["notes"] == []
    assert "the script runs to its end (24 steps)" in report["checked"]


MODULE = """
import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from lent import Perceptron


class Module(pl.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.net = Perceptron(width)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        y = torch.randint(0, 3, (400,))
        x = torch.randn(400, 8)
        x[:, :3] += 2.0 * F.one_hot(y, 3)
        return DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
"""
LENT = """
from torch import nn


class Perceptron(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return super().forward(x).softmax(1)
"""


@needs_fork
@pytest.mark.slow
def test_reviews_a_module_whose_net_is_in_an_editable_install(programs: Path, tmp_path: Path) -> None:
    """The net is the user's unless its folder is named."""
    checkout, project = tmp_path / "checkout", tmp_path / "project"
    checkout.mkdir()
    project.mkdir()
    (checkout / "lent.py").write_text(LENT, encoding="utf-8")
    (project / "my.py").write_text(MODULE, encoding="utf-8")
    asked = execute([programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], project)
    link = Path(asked.out.strip()) / "__editable__.lent.pth"
    link.write_text(f"{checkout}{os.linesep}", encoding="utf-8")
    command = [programs / "torchdoctor", "--model", "my.Module", "--model.width", "64", "--data", "my.Data"]
    own = execute([*command, "--format", "json", "--only", "double-softmax"], project)
    lent = execute([*command, "--format", "json", "--only", "double-softmax", "--libraries", "../checkout"], project)
    clean = execute([*command, "--only", "missing-zero-grad"], project)
    link.unlink()
    [finding] = json.loads(own.out)["findings"]
    assert (finding["file"], finding["code"]) == (str(checkout / "lent.py"), "return super().forward(x).softmax(1)")
    [finding] = json.loads(lent.out)["findings"]
    assert (finding["file"], finding["code"]) == (str(project / "my.py"), "return F.cross_entropy(self.net(x), y)")
    assert (own.code, lent.code, clean.code) == (1, 1, 0), clean
    assert clean.out.startswith("my.Module · nothing found · 1 checks passed · ")
