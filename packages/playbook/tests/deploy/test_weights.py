"""Files out of a checkpoint hold the same weights, bit by bit, and need neither data nor the run they came from."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import squeezenet1_1

from playbook.checkpoints.io import AtomicCheckpointIO, load
from playbook.deploy.card import write_weights_card
from playbook.deploy.weights import FORMATS, Net, export_weights, net_of
from playbook.errors import UserError
from playbook.testing.command import Cli
from playbook.training.initial import load_weights
from running import MLP_DIGITS

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


class Wrapped(pl.LightningModule):
    """A net of torchvision in a class of one's own, and weights beside it or not."""

    def __init__(self, beside: bool = False) -> None:
        super().__init__()
        self.net = Wrapper()
        if beside:
            self.temperature = nn.Parameter(torch.ones(()))


class Wrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = squeezenet1_1(num_classes=2)


def test_names_are_those_of_the_net(tmp_path: Path) -> None:
    """huggingface/transformers#9209: files whose names begin with those of wrappers load nowhere else."""
    model, path = Wrapped(), tmp_path / "weights.safetensors"
    export_weights(model, save(model, tmp_path / "best.ckpt"), path)
    assert not any(squeezenet1_1(num_classes=2).load_state_dict(load_file(path)))
    stored = load(path)["state_dict"]
    assert stored.keys() == model.state_dict().keys()
    assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items())


def test_files_of_former_versions_are_read(tmp_path: Path) -> None:
    model, other = Wrapped(), Wrapped()
    save_file(model.state_dict(), tmp_path / "old.safetensors", {"format": "pt", "class_path": "Wrapped"})
    load_weights(other, tmp_path / "old.safetensors")
    assert all(torch.equal(other.state_dict()[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "net"),
    [
        (Wrapped(), Net("net.inner.", "torchvision.models.squeezenet.SqueezeNet", True)),
        (Wrapped(beside=True), Net("net.inner.", "torchvision.models.squeezenet.SqueezeNet", False)),
        (Classification(MLP(in_features=64)), Net("net.", "example.nets.mlp.MLP", True)),
        (Tied(), Net("", f"{__name__}.Tied", False)),
    ],
    ids=["wrapped", "with weights beside it", "own", "no net"],
)
def test_the_net_in_a_model(model: pl.LightningModule, net: Net, tmp_path: Path) -> None:
    """The README loads the weights into the net, by exactly what stands in it."""
    assert net_of(model, model.state_dict()) == net
    export_weights(model, save(model, tmp_path / "best.ckpt"), tmp_path / "model.safetensors")
    manifest = {"name": "a", "net": "b", "task": "c", "format": "safetensors", "quantization": "none", "metrics": {}}
    text = write_weights_card(tmp_path, {**manifest, "weights": net}).read_text()
    target = model.get_submodule(net.prefix.rstrip("."))
    code = text.partition("```python")[2].partition("```")[0].replace("model.safe", f"{tmp_path.as_posix()}/model.safe")
    exec(code, {"net": target, "module": model})  # what the README says
    assert net.kind in text


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
    done = cli("export", "--ckpt_path", "run", "--data.class_path", f"{__name__}.NoData")
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
