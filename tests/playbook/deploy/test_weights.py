"""Files out of a checkpoint hold the same weights, bit by bit, and need neither data nor the run they came from."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.deploy.weights import FORMATS, export_weights
from playbook.errors import UserError
from playbook.training.initial import load_weights
from tests.playbook.running import MLP_DIGITS, Cli

SHORT = ["--config", MLP_DIGITS, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3"]
SHORT += ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1", "--trainer.logger", "false"]


class Tied(pl.LightningModule):
    """One matrix under two names, a view of it under a third, and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("first", self.embedding.weight.detach()[0])
        self.register_buffer("turned", torch.randn(3, 2).T)


def save(module: pl.LightningModule, path: Path, **more: Any) -> Path:
    AtomicCheckpointIO().save_checkpoint({"state_dict": module.state_dict(), **more}, path)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_outputs_are_bitwise_the_same(tmp_path: Path, suffix: str) -> None:
    torch.manual_seed(0)
    model, other = (Classification(MLP(in_features=64)) for _ in range(2))
    images = torch.randn(3, 64)
    assert not torch.equal(model.eval()(images), other.eval()(images))
    export_weights(model, save(model, tmp_path / "best.ckpt"), tmp_path / f"weights{suffix}")
    load_weights(other, tmp_path / f"weights{suffix}")
    assert torch.equal(model(images), other(images))
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["best.ckpt", f"weights{suffix}"])


def test_tied_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    export_weights(model, save(model, tmp_path / "best.ckpt"), tmp_path / "weights.safetensors")
    found = load_file(tmp_path / "weights.safetensors")
    assert found.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(found[name], value), name
    other.load_state_dict(found)
    assert other.head.weight is other.embedding.weight
    assert torch.equal(other.head.weight, model.head.weight)


def test_who_may_read_it(tmp_path: Path) -> None:
    model = Tied()
    export_weights(model, save(model, tmp_path / "best.ckpt"), tmp_path / "weights.safetensors")
    (tmp_path / "plain").touch()
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_failure_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = Tied(), tmp_path / "weights.safetensors"
    export_weights(model, save(model, tmp_path / "best.ckpt"), path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("playbook.deploy.weights.save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        export_weights(model, tmp_path / "best.ckpt", path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["weights", "weights.onx", "weights.safetensor"])
def test_unknown_format(tmp_path: Path, name: str) -> None:
    model = Tied()
    with pytest.raises(UserError, match=r"--output \S+: expected a name that ends in \.safetensors, \.ckpt"):
        export_weights(model, save(model, tmp_path / "best.ckpt"), tmp_path / name)


def test_output_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").mkdir()
    with pytest.raises(UserError, match=r"x\.ckpt: is a folder, expected the name of a file"):
        export_weights(Tied(), save(Tied(), tmp_path / "best.ckpt"), tmp_path / "x.ckpt")


def test_without_a_checkpoint(cli: Cli) -> None:
    done = cli("export")
    assert (done.code, done.err) == (
        2, "error: --ckpt_path: export needs one: best, last, a run directory or a checkpoint file\n"
    )  # fmt: skip


@pytest.mark.slow
def test_command(cli: Cli, workdir: Path) -> None:
    """Exported without the data; measured, and started from, without the run."""
    assert cli("fit", *SHORT, "--run_dir", "run").code == 0
    done = cli("export", "--ckpt_path", "run", "--data.class_path", "tests.playbook.deploy.test_weights.NoData")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("exported  run/exports/best.safetensors (")
    exported = workdir / "run/exports/best.safetensors"
    with safe_open(exported, framework="pt") as file:
        metadata = file.metadata()
    best = load(workdir / "run/checkpoints/best.ckpt")
    assert metadata["class_path"] == "example.tasks.classification.Classification"
    assert metadata["config"] == best["config"]
    tested = cli("test", "--ckpt_path", str(exported), "--trainer.limit_test_batches", "1")
    assert tested.out == cli("test", "--ckpt_path", "run/checkpoints/best.ckpt").out
    started = cli("fit", *SHORT, "--run_dir", "new", "--init_from", str(exported))
    assert f"init_from {exported}: 14 of 14 entries loaded" in started.out
    refused = cli("fit", "--ckpt_path", str(exported))
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "contains only weights, so it cannot resume; use --init_from" in refused.err
    plain = cli("export", "--ckpt_path", "run/checkpoints/last.ckpt", "--output", "copies/all.ckpt")
    assert plain.code == 0
    assert load(Path("copies/all.ckpt")).keys() == load(Path("run/checkpoints/last.ckpt")).keys()


class NoData(pl.LightningDataModule):
    """Fails as soon as it is asked for anything."""

    def prepare_data(self) -> None:
        raise OSError("there is no data here")

    def setup(self, stage: str) -> None:
        raise OSError("there is no data here")
