"""Weights that a training starts from: which are copied, and what is said of the others."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from playbook.errors import UserError
from playbook.training.initial import load_weights, summarised

Capture = pytest.CaptureFixture[str]


class TwoLayers(pl.LightningModule):
    """Has a net of two layers."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Linear(hidden, 1))


class Holder(pl.LightningModule):
    """Has any net."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class Wrapped(nn.Module):
    """A net in a net, as wrappers of torchvision's are built."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


def resnet(num_classes: int = 1000) -> nn.Module:
    return torchvision.models.resnet18(num_classes=num_classes)


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def test_what_fits_and_why_the_rest_does_not(workdir: Path, capsys: Capture) -> None:
    source, target = TwoLayers(3), TwoLayers(5)
    weights: dict[str, Tensor] = source.state_dict() | {"head.weight": torch.ones(1), "head.bias": torch.ones(1)}
    del weights["net.0.bias"]
    torch.save({"state_dict": weights}, "source.ckpt")
    before = {name: value.clone() for name, value in target.state_dict().items()}
    load_weights(target, Path("source.ckpt"))
    after = target.state_dict()
    assert torch.equal(after["net.1.bias"], source.state_dict()["net.1.bias"])
    for name in ("net.0.weight", "net.0.bias", "net.1.weight"):
        assert torch.equal(after[name], before[name]), name
    assert capsys.readouterr().out.splitlines() == [
        "init_from source.ckpt: 1 of 4 entries loaded",
        "  2 with a different shape, left at their initialisation:",
        "    net.0.weight (3, 2) in the file, (5, 2) in the model",
        "    net.1.weight (1, 3) in the file, (1, 5) in the model",
        "  1 missing in the file, left at their initialisation:",
        "    net.0.bias",
        "  2 not in this model, skipped:",
        "    head.* (2)",
    ]


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("", "net. put before names"),
        ("net.", ""),
        ("module.", "module. read as net."),
        ("model.", "model. read as net."),
        ("backbone.", "backbone. read as net."),
        ("module.model.backbone.", "module.model.backbone. read as net."),
        ("_orig_mod.", "_orig_mod. left out, net. put before names"),
        ("net._orig_mod.", "_orig_mod. left out"),
        ("model._orig_mod.", "_orig_mod. left out, model. read as net."),
    ],
)
def test_prefixes_of_wrappers(prefix: str, words: str, workdir: Path, capsys: Capture) -> None:
    source, target = TwoLayers(3), TwoLayers(3)
    torch.save({f"{prefix}{name}": value for name, value in source.net.state_dict().items()}, "net.pt")
    load_weights(target, Path("net.pt"))
    assert same(source.state_dict(), target.state_dict())
    changes = f" ({words})" if words else ""
    assert capsys.readouterr().out == f"init_from net.pt: 4 of 4 entries loaded{changes}\n"


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_state_dicts_of_training_scripts(key: str, workdir: Path) -> None:
    source, target = TwoLayers(3), TwoLayers(3)
    torch.save({key: source.net.state_dict(), "epoch": 3, "optimizer": {"state": {}}}, "script.pt")
    load_weights(target, Path("script.pt"))
    assert same(source.state_dict(), target.state_dict())


@pytest.mark.parametrize("form", ["torch", "safetensors", "lightning"])
def test_weights_of_torchvision_with_another_head(form: str, workdir: Path, capsys: Capture) -> None:
    source, target = resnet(), Holder(Wrapped(resnet(num_classes=5)))
    path = Path({"torch": "resnet18.pth", "safetensors": "resnet18.safetensors", "lightning": "other.ckpt"}[form])
    weights: dict[str, Any] = source.state_dict()
    if form == "safetensors":
        save_file(weights, path)
    elif form == "torch":
        torch.save(weights, path)
    else:
        model = {f"model.{name}": value for name, value in weights.items()} | {"criterion.weight": torch.ones(3)}
        torch.save({"state_dict": model, "hyper_parameters": {"lr": 0.1}, "pytorch-lightning_version": "1.9.0"}, path)
    load_weights(target, path)
    for name, value in target.state_dict().items():
        assert torch.equal(value, weights[name.removeprefix("net.net.")]) or ".fc." in name, name
    lines = capsys.readouterr().out.splitlines()
    words = "model. read as net.net." if form == "lightning" else "net.net. put before names"
    assert lines[:4] == [
        f"init_from {path}: 120 of 122 entries loaded ({words})",
        "  2 with a different shape, left at their initialisation:",
        "    net.net.fc.weight (1000, 512) in the file, (5, 512) in the model",
        "    net.net.fc.bias (1000,) in the file, (5,) in the model",
    ]
    assert lines[4:] == (["  1 not in this model, skipped:", "    criterion.weight"] if form == "lightning" else [])


def test_the_backbone_of_a_larger_net(workdir: Path, capsys: Capture) -> None:
    source = resnet()
    detector = nn.ModuleDict({"backbone": resnet(), "neck": nn.Linear(2, 2)})
    torch.save(source.state_dict(), "resnet18.pth")
    load_weights(Holder(detector), Path("resnet18.pth"))
    assert same(source.state_dict(), detector["backbone"].state_dict())
    out = capsys.readouterr().out
    assert "122 of 124 entries loaded (net.backbone. put before names)" in out
    assert "    net.neck.* (2)\n" in out


def test_long_lists_are_cut_and_counted(workdir: Path, capsys: Capture) -> None:
    extra = {f"extra{number}.x": torch.ones(1) for number in range(20)}
    torch.save(TwoLayers(3).state_dict() | extra, "more.pt")
    load_weights(TwoLayers(3), Path("more.pt"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  20 not in this model, skipped:"
    assert [line.strip() for line in lines[2:8]] == [f"extra{number}.x" for number in range(6)]
    assert lines[8:] == ["    and 14 more"]


def test_modules_are_summarised_where_all_of_them_is_meant() -> None:
    every = ["a.0.w", "a.0.b", "a.1.w", "a.1.b", "b.w", "b.b", "c"]
    assert summarised(["a.0.w", "a.0.b", "a.1.w", "b.b", "c"], every) == ["a.0.* (2)", "a.1.w", "b.b", "c"]
    assert summarised(every, every) == ["a.* (4)", "b.* (2)", "c"]
    assert summarised([], every) == []


def test_nothing_fits_by_name(workdir: Path) -> None:
    torch.save({"nat.0.weight": torch.ones(3, 2), "b": torch.ones(1), "c": torch.ones(1)}, "other.pt")
    with pytest.raises(UserError) as caught:
        load_weights(TwoLayers(3), Path("other.pt"))
    assert str(caught.value) == (
        "--init_from other.pt: no weight fits this model: the file has nat.0.weight, b and 1 more; the model has "
        "net.0.weight, net.0.bias and 2 more. Nearest: net.0.weight, net.1.weight"
    )


def test_nothing_fits_by_shape(workdir: Path) -> None:
    torch.save({"0.weight": torch.ones(7, 2), "0.bias": torch.ones(7)}, "wide.pt")
    with pytest.raises(
        UserError, match=r"no weight fits this model: net\.0\.weight \(7, 2\) in the file, \(3, 2\) in the"
    ):
        load_weights(TwoLayers(3), Path("wide.pt"))


def test_no_weights_at_all(workdir: Path) -> None:
    torch.save({"epoch": 3}, "none.pt")
    with pytest.raises(UserError, match=r"none\.pt: contains no weights"):
        load_weights(TwoLayers(3), Path("none.pt"))
