"""The verb hands over to torchdoctor: options, exit codes, and the command that `--fix` and written tests repeat."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="the review copies its process (os.fork), which this system cannot"
)
PROGRAM = """
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self, width: int = 16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.net(x).softmax(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Plain(Model):
    def forward(self, x):
        return self.net(x)


class Broken(Model):
    def __init__(self):
        self.net = nn.Linear(8, 3)


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        y = torch.arange(300) % 3
        x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0)) + nn.functional.one_hot(y, 8)
        return DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)


print("imported")
"""
DATA = ("--data", "program.Data")
SOFTMAX = ("--model", "program.Model", *DATA)
FEW = ("--only", "double-softmax,batch-mixing")
SCRIPT = """
import sys
print("got", sys.argv[1:], flush=True)
raise SystemExit(3)
"""


@pytest.fixture(autouse=True)
def program(workdir: Path) -> None:
    (workdir / "program.py").write_text(PROGRAM, encoding="utf-8")


@pytest.mark.slow
def test_a_module_is_reviewed(cli: Cli) -> None:
    done = cli("doctor", *SOFTMAX, *FEW, "--model.width", "8", "--write_tests", "test_review.py")
    assert done.code == 1, done.err
    assert re.search(r"critical  double-softmax  program\.py:\d+\n      return self.net\(x\).softmax\(1\)", done.out)
    assert "samples of a batch do not change each other" in done.out
    text = Path("test_review.py").read_text(encoding="utf-8")
    assert 'VERIFIED = [\n    "batch-mixing",\n]' in text
    assert f"COMMAND = {json.dumps(['-m', 'example', 'doctor', *SOFTMAX, '--model.width', '8'])}\n" in text
    assert cli("doctor", "--model", "program.Plain", *DATA, *FEW).code == 0


def test_what_a_program_prints_is_not_in_its_report(cli: Cli) -> None:
    done = cli("doctor", *SOFTMAX, "--only", "batch-mixing", "--format=json")
    assert json.loads(done.out)["findings"] == []
    assert "imported" in done.err


def test_a_module_that_cannot_be_built(cli: Cli) -> None:
    done = cli("doctor", "--model", "program.Broken", *DATA, "--format", "json")
    assert done.code == 1, done.err
    assert [item["id"] for item in json.loads(done.out)["findings"]] == ["missing-super-init"]


@pytest.mark.slow
def test_a_module_is_repaired(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = cli("doctor", *SOFTMAX, *FEW, "--fix")
    assert done.code == 0, done.out + done.err
    assert "return self.net(x)\n" in Path("program.py").read_text(encoding="utf-8").partition("class Plain")[0]


@pytest.mark.slow
def test_everything_after_a_script_is_its_own(cli: Cli, workdir: Path) -> None:
    (workdir / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = cli("doctor", "--only", "crash", "train.py", "--debug", "--fix", "-h", "--format", "json")
    assert done.code == 2, done.err
    assert "got ['--debug', '--fix', '-h', '--format', 'json']" in done.err
    assert "Review a model and its data by running them" in cli("doctor", "--fix", "--help", "train.py").out


def test_mistakes_are_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("doctor", *SOFTMAX, "--only", "double-softmx")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "--only double-softmx: no such defect. Nearest: double-softmax" in done.err
    done = cli("doctor", "none.py")
    assert (done.code, done.err) == (2, "error: none.py: no such file\n"), done
    monkeypatch.delattr(os, "fork")
    done = cli("doctor", *SOFTMAX)
    assert (done.code, "the review copies its process" in done.err) == (2, True), done.err


def test_a_missing_reviewer_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.insight.review.find_spec", lambda _: None)
    for args in (("doctor", *SOFTMAX), ("fit", "--doctor", *SOFTMAX, "--trainer.max_epochs", "1", "--run_dir", "run")):
        done = cli(*args)
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert "torchdoctor is not installed: pip install torchdoctor" in done.err


@pytest.mark.slow
def test_fit_stops_at_a_critical_finding(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    few = frozenset({"double-softmax", "batch-mixing"})  # of the quick ones, which take seconds
    monkeypatch.setattr("torchdoctor.options.quick_ids", lambda: few)
    short = ("--trainer.max_epochs", "1")
    done = cli("fit", "--doctor", *SOFTMAX, *short, "--run_dir", "run")
    assert done.code == 2
    assert "error: --doctor: double-softmax, see above" in done.err
    fine = cli("fit", "--doctor", "--model", "program.Plain", *DATA, *short, "--run_dir", "fine")
    assert fine.code == 0, fine.err
    assert "nothing found, 2 checks passed" in fine.out
