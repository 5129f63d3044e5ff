"""Facts travel from the data into checkpoints and metrics.json, and back into data and model."""

import json
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from safetensors import safe_open

from playbook import UserError
from playbook.checkpoints.opened import Opened
from playbook.facts import KEY, VERSION, pack
from playbook.testing.command import Cli
from playbook.training.facts import KeepFacts

OWN = """
from example.data.digits import Digits

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Named(Digits):
    \"\"\"Digits with names.

    Args:
        reverse: name them the other way round.
        loader: further options of Digits.
    \"\"\"

    def __init__(self, reverse: bool = False, **loader) -> None:
        super().__init__(**loader)
        self.reverse = reverse
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.facts["classes"] = NAMES[::-1] if self.reverse else NAMES
        self.facts["mean"] = (0.25, 0.5)


class Others(Named):
    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.facts["mean"] = (0.0, 1.0)
"""
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FACTS = {"classes": NAMES, "mean": [0.25, 0.5]}
FIT = ("fit", "--model", "Classification", "--model.net", "MLP", "--model.net.widths", "[4]", "--run_dir", "run")
BEST = ("--checkpoint.monitor", "val/accuracy", "--checkpoint.mode", "max")
SHORT = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1")


@pytest.fixture
def run(cli: Cli, workdir: Path) -> Path:
    """A short training on data with names."""
    (workdir / "named.py").write_text(OWN)
    done = cli(*FIT, "--data", "named.Named", *BEST, *SHORT, "--trainer.limit_test_batches", "1")
    assert done.code == 0, done.err
    return workdir / "run"


def test_facts_are_in_whatever_a_run_leaves(cli: Cli, run: Path) -> None:
    for name in ("best.ckpt", "last.ckpt"):
        content = torch.load(run / "checkpoints" / name, weights_only=True)
        assert content[KEY] == {"version": VERSION, "values": FACTS}, name
    assert json.loads((run / "metrics.json").read_text())["facts"] == FACTS
    for file in ("w.safetensors", "w.ckpt"):
        assert cli("export", "--ckpt_path", "run", "--output", file).code == 0
        assert Opened(Path(file)).facts == FACTS, file
    with safe_open("w.safetensors", "pt") as weights:
        assert json.loads(weights.metadata()[KEY]) == {"version": VERSION, "values": FACTS}


def test_a_test_on_other_data_leaves_those_of_the_run(cli: Cli, run: Path) -> None:
    done = cli("test", "--ckpt_path", "run", "--data", "named.Others")
    assert done.code == 0, done.err
    assert json.loads((run / "metrics.json").read_text())["facts"] == FACTS


def test_load_from_checkpoint_gives_them_back(run: Path) -> None:
    path = run / "checkpoints/last.ckpt"
    assert Classification.load_from_checkpoint(path, net=MLP(widths=[4])).facts == FACTS
    named = import_module("named")
    assert named.Named.load_from_checkpoint(path).facts == FACTS


def test_classes_in_another_order_are_refused(cli: Cli, run: Path) -> None:
    before = (run / "metrics.json").read_text()
    done = cli("test", "--ckpt_path", "run", "--data.reverse", "true")
    assert done.code == 2
    assert "--data: Named numbers its classes nine, eight, seven, six, five and 5 more, the checkpoint" in done.err
    assert "Traceback" not in done.err
    assert json.loads((run / "metrics.json").read_text())["facts"] == json.loads(before)["facts"]


def test_a_continued_run_keeps_them(cli: Cli, run: Path) -> None:
    done = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    assert done.code == 0, done.err
    assert Opened(run / "checkpoints/last.ckpt").facts == FACTS


def test_an_old_checkpoint_says_once_that_it_has_no_names(cli: Cli, run: Path) -> None:
    path = run / "checkpoints/best.ckpt"
    content = torch.load(path, weights_only=True)
    del content[KEY], content["Named"]["facts"]
    torch.save(content, "old.ckpt")
    done = cli("test", "--ckpt_path", "old.ckpt")
    assert done.code == 0, done.err
    told = "old.ckpt contains no class names: assuming zero, one, two, three, four and 5 more, without a check\n"
    assert done.out.count(told) == 1


@pytest.mark.parametrize(("stage", "count"), [("predict", 1), ("test", 0)])
def test_answers_without_names_are_told_of(tmp_path: Path, stage: str, count: int, capsys: Any) -> None:
    """Where neither the checkpoint nor the data knows the classes, as with raw inputs."""
    model: Any = SimpleNamespace(facts={}, answer=list)
    trainer = SimpleNamespace(datamodule=SimpleNamespace(), is_global_zero=True)
    keep = KeepFacts()
    keep.give(model, None, opened(tmp_path))
    for _ in range(2):
        keep.setup(trainer, model, stage)
    assert capsys.readouterr().out.count("contains no facts, such as class names: showing numbers instead") == count


def test_facts_of_a_later_version_are_refused(cli: Cli, run: Path) -> None:
    path = run / "checkpoints/best.ckpt"
    content = torch.load(path, weights_only=True)
    content[KEY]["version"] = VERSION + 1
    torch.save(content, "later.ckpt")
    done = cli("test", "--ckpt_path", "later.ckpt")
    assert done.code == 2
    told = f"later.ckpt: its facts have version {VERSION + 1}, this Playbook reads up to {VERSION}; update Playbook"
    assert told in done.err
    assert "Traceback" not in done.err


def opened(tmp_path: Path, **content: Any) -> Opened:
    torch.save({"state_dict": {}, **content}, tmp_path / "x.ckpt")
    return Opened(tmp_path / "x.ckpt")


def test_the_checkpoint_counts_before_the_model(tmp_path: Path) -> None:
    model, data = (SimpleNamespace(facts={"classes": ["a"]}) for _ in range(2))
    keep = KeepFacts()
    keep.give(model, data, opened(tmp_path, facts=pack({"classes": ["b"]})))
    assert model.facts == data.facts == {"classes": ["b"]}
    model.facts["classes"] = []
    assert keep.facts == data.facts == {"classes": ["b"]}


def test_the_model_counts_where_there_is_no_checkpoint() -> None:
    model, data = SimpleNamespace(facts={"classes": ["a"]}), SimpleNamespace(facts={})
    KeepFacts().give(model, data, None)
    assert data.facts == {"classes": ["a"]}


def test_modules_of_others_are_left_alone(tmp_path: Path) -> None:
    model, data = SimpleNamespace(), SimpleNamespace(facts="their own")
    KeepFacts().give(model, data, opened(tmp_path, facts=pack({"classes": ["b"]})))
    assert (vars(model), data.facts) == ({}, "their own")


def test_damage_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.ckpt: its facts are damaged"):
        KeepFacts().give(None, None, opened(tmp_path, facts=3))


def test_only_the_tokenizer_comes_with_the_weights_to_start_from(tmp_path: Path) -> None:
    tokenizer = {"kind": "bytes"}
    torch.save({"state_dict": {}, KEY: pack({"tokenizer": tokenizer, "classes": NAMES})}, tmp_path / "w.ckpt")
    keep, data = KeepFacts(), SimpleNamespace(facts={})
    keep.inherit(data)
    assert data.facts == {}
    keep.init_from = tmp_path / "w.ckpt"
    keep.inherit(data)
    assert data.facts == {"tokenizer": tokenizer}
    keep.inherit(None)
