"""A checkpoint is read once before a command runs, and says what it was made with."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from playbook.checkpoints import single
from playbook.checkpoints.io import AtomicCheckpointIO
from playbook.checkpoints.opened import Opened
from playbook.errors import UserError
from playbook.testing.command import Cli
from running import MLP_DIGITS

WEIGHTS = {"net.weight": torch.ones(3, 2)}
SMALL = ("--config", MLP_DIGITS, "--run_dir", "run", "--data.batch_size", "512", "--model.net.widths", "[4]")


def opened(path: Path, **content: Any) -> Opened:
    AtomicCheckpointIO().save_checkpoint({"state_dict": WEIGHTS, **content}, path)
    return Opened(path)


@pytest.fixture
def reads(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was loaded, and read for its checksum, by inode."""
    counts: Counter[str] = Counter()
    load, archive_fault = torch.load, single.archive_fault

    def counted_load(file: Any, *args: Any, **options: Any) -> Any:
        counts[f"load {os.stat(file).st_ino} {options.get('map_location')}"] += 1
        return load(file, *args, **options)

    def counted_fault(file: Path) -> str | None:
        counts[f"verify {file.stat().st_ino}"] += 1
        return archive_fault(file)

    monkeypatch.setattr(torch, "load", counted_load)
    monkeypatch.setattr(single, "archive_fault", counted_fault)
    return counts


@pytest.mark.slow
def test_continuing_reads_once_for_names_and_once_for_weights(cli: Cli, reads: Counter[str]) -> None:
    assert cli("fit", *SMALL, "--trainer.max_epochs", "1").code == 0
    inode = Path("run/checkpoints/last.ckpt").stat().st_ino
    os.link("run/checkpoints/last.ckpt", "kept")  # or the inode would serve another file
    reads.clear()
    done = cli("fit", *SMALL, "--trainer.max_epochs", "2", "--ckpt_path", "last")
    assert done.code == 0, done.err
    own = {name: count for name, count in reads.items() if str(inode) in name.split()}
    assert own == {f"verify {inode}": 1, f"load {inode} meta": 1, f"load {inode} cpu": 1}


@pytest.mark.parametrize("verb", ["test", "validate"])
def test_measuring_reads_once_for_names_and_once_for_weights(cli: Cli, reads: Counter[str], verb: str) -> None:
    assert cli("fit", *SMALL, "--trainer.max_epochs", "1").code == 0
    inode = Path("run/checkpoints/best.ckpt").stat().st_ino
    reads.clear()
    assert cli(verb, "--ckpt_path", "run/checkpoints/best.ckpt").code == 0
    loads = {name: count for name, count in reads.items() if name.startswith(f"load {inode} ")}
    assert loads == {f"load {inode} meta": 1, f"load {inode} cpu": 1}


def test_names_and_shapes_without_values(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path / "a.ckpt")
    [(name, weight)] = checkpoint.weights.items()
    assert (name, weight.shape, weight.device.type) == ("net.weight", (3, 2), "meta")
    assert not checkpoint.has_position
    assert opened(tmp_path / "b.ckpt", loops={}).has_position
    assert str(checkpoint) == str(tmp_path / "a.ckpt")


def test_configuration(tmp_path: Path) -> None:
    assert opened(tmp_path / "own.ckpt", config="model: {a: 1}").config == "model: {a: 1}"
    values = {"_class_path": "my.Net", "_instantiator": "x", "width": 3}
    other = opened(tmp_path / "other.ckpt", hyper_parameters=values, datamodule_hyper_parameters={"size": 2})
    assert yaml.safe_load(other.config) == {"model": {"class_path": "my.Net", "init_args": {"width": 3}}}


@pytest.mark.parametrize(
    ("config", "message"), [("a: [1", "its configuration is not valid YAML: "), ("- 1", "is not a mapping of options")]
)
def test_configuration_that_is_none(tmp_path: Path, config: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _ = opened(tmp_path / "a.ckpt", config=config).config
