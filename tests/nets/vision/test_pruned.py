"""Pruning: a pruned net is the net without some channels, and a run of it no longer needs the base."""

import json
import shutil
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from playbook import UserError, load_run
from playbook.deploy.runtime import Artefact
from playbook.network import restored
from playbook.testing.command import Cli
from src.nets.mlp import MLP
from src.nets.vision.airbench import Airbench
from src.nets.vision.cnn import CNN
from src.nets.vision.pruned import Pruned
from src.nets.vision.resnet import ResNet
from src.nets.vision.resnet9 import ResNet9
from src.nets.vision.unet import UNet
from src.nets.vision.vit import ViT
from src.nets.vision.yolo import YOLO
from tests.conftest import CNN_DIGITS

NETS: list[tuple[Callable[[], nn.Module], list[int]]] = [
    (lambda: CNN(widths=[4, 8]), [1, 8, 8]),
    (lambda: ResNet(depth=18, width=4, in_channels=1), [1, 32, 32]),
    (lambda: ResNet(depth=50, width=2), [3, 32, 32]),
    (lambda: ResNet9(width=4), [3, 32, 32]),
    (lambda: Airbench(width=4), [3, 16, 16]),
    (lambda: UNet(widths=[4, 6, 8]), [3, 16, 16]),
    (lambda: UNet(widths=[4, 6, 8]), [3, 15, 17]),
]
IDS = ["CNN", "ResNet-18", "ResNet-50", "ResNet9", "Airbench", "UNet", "padded UNet"]


def trained(net: nn.Module) -> Any:
    """As after some training: no two channels have the same statistics."""
    torch.manual_seed(0)
    net = net.double()
    with torch.no_grad():
        for value in [*net.parameters(), *net.buffers()]:
            if value.is_floating_point() and value.ndim == 1:
                value.copy_(torch.rand_like(value) + 0.5)
    return net.eval()


def without(net: nn.Module, pruned: nn.Module) -> Any:
    """A net that writes zeros to the channels that a pruned one lacks, told by their statistics and biases."""
    net = deepcopy(net)
    for name, layer in net.named_modules():
        identity = "running_mean" if isinstance(layer, nn.BatchNorm2d) else "bias"
        values: Any = getattr(layer, identity, None)
        if values is None:
            continue  # a norm follows
        kept = getattr(pruned.get_submodule(name), identity)
        removed = ~torch.isin(values, kept)
        assert len(values) - removed.sum() == len(kept), name
        weight = layer.get_parameter("weight").detach()
        (weight.transpose(0, 1) if isinstance(layer, nn.ConvTranspose2d) else weight)[removed] = 0
        layer.get_parameter("bias").detach()[removed] = 0
    return net


@pytest.mark.parametrize(("make", "shape"), NETS, ids=IDS)
def test_a_pruned_net_is_the_net_with_channels_of_zeros(make: Callable[[], nn.Module], shape: list[int]) -> None:
    net = trained(make())
    net = net.float().double()  # as the pruned one, which is traced in float32
    pruned = Pruned(deepcopy(net).float(), 0.5, shape).double().eval()
    image = torch.randn(2, *shape, dtype=torch.float64)
    output = pruned(image)
    assert (output - net(image)).abs().max() > 1e-3, "nothing was pruned"
    reference = without(net, pruned.net)
    torch.testing.assert_close(output, reference(image))
    sizes = [sum(parameter.numel() for parameter in part.parameters()) for part in (pruned, net)]
    assert sizes[0] < 0.4 * sizes[1], f"{sizes[0]} of {sizes[1]} parameters"


@pytest.mark.parametrize(("make", "shape"), NETS, ids=IDS)
def test_an_amount_of_zero_leaves_the_net_as_it_is(make: Callable[[], nn.Module], shape: list[int]) -> None:
    torch.manual_seed(0)
    net = make()
    pruned = Pruned(deepcopy(net), 0.0, shape)
    assert pruned.training
    assert all(module.training for module in pruned.modules())
    for (name, value), own in zip(net.state_dict().items(), pruned.net.state_dict().values(), strict=True):
        assert torch.equal(value, own), name


def test_the_strongest_channels_remain() -> None:
    """By the mean of the squared weights that write, scale and read a channel."""
    torch.manual_seed(0)
    net: Any = CNN(widths=[8])
    conv, norm, head = net.stages[0][0], net.stages[0][1], net.head[1]
    nn.init.uniform_(norm.weight, 0, 2)
    strength = sum(weight.square().sum(dims) for weight, dims in ((conv.weight, (1, 2, 3)), (head.weight, 0)))
    strongest = (strength + norm.weight.square()).topk(6).indices.sort().values
    expected = conv.weight[strongest]
    Pruned(net, 0.25, [1, 8, 8])
    torch.testing.assert_close(net.stages[0][0].weight, expected)


@pytest.mark.parametrize("amount", [0.1, 0.5, 0.74])
def test_shapes_depend_on_the_amount_alone(amount: float) -> None:
    """So that a checkpoint loads into a net that is pruned from random weights."""
    torch.manual_seed(0)
    nets = [Pruned(UNet(widths=[5, 7, 9]), amount, [3, 16, 16]) for _ in range(2)]
    shapes = [[value.shape for value in net.state_dict().values()] for net in nets]
    assert shapes[0] == shapes[1]
    assert shapes[0][0] == (5 - int(5 * amount), 3, 3, 3)


def test_random_numbers_and_statistics_are_left_alone() -> None:
    torch.manual_seed(0)
    net = CNN(widths=[4, 8])
    state = torch.get_rng_state()
    pruned = Pruned(net, 0.5, [1, 8, 8])
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(value.any() for name, value in pruned.named_buffers() if name.endswith("running_mean"))


@pytest.mark.parametrize(
    ("make", "amount", "shape", "message"),
    [
        (CNN, 1.0, [1, 8, 8], r"amount: expected a share in \[0, 1\), got 1.0"),
        (CNN, -0.1, [1, 8, 8], r"amount: expected a share in \[0, 1\), got -0.1"),
        (CNN, 0.5, [3, 8, 8], r"net: CNN cannot be pruned with image_shape \[3, 8, 8\]: .*channels"),
        (lambda: nn.Linear(4, 2), 0.5, [4], r"Linear cannot be pruned .*: every layer writes the output"),
        (lambda: nn.Embedding(50, 16), 0.5, [16], "Embedding cannot be pruned"),
        (lambda: ViT(image_size=8, patch_size=4), 0.5, [1, 8, 8], "ViT cannot be pruned"),
        (YOLO, 0.5, [3, 64, 64], "YOLO cannot be pruned .*: expected one tensor as output, got a list"),
    ],
)
def test_what_cannot_be_pruned_is_told(
    make: Callable[[], nn.Module], amount: float, shape: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Pruned(make(), amount, shape)


def test_linear_layers_are_pruned_too() -> None:
    net = Pruned(MLP(widths=[16, 32]), 0.5, [1, 8, 8])
    assert net(torch.randn(3, 1, 8, 8)).shape == (3, 10)
    assert [layer.out_features for layer in net.modules() if isinstance(layer, nn.Linear)] == [8, 16, 10]


def test_the_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ValueError, match="Pruned needs torch-pruning: uv sync --extra prune"):
        Pruned(CNN(), 0.5, [1, 8, 8])


def test_a_base_that_is_missing_is_told() -> None:
    with pytest.raises(UserError, match=r"--model\.net\.base nowhere"):
        Pruned(CNN(), 0.5, [1, 8, 8], base="nowhere")
    with restored(from_checkpoint=True):  # the weights come from a checkpoint
        Pruned(CNN(), 0.5, [1, 8, 8], base="nowhere")


PRUNED = """
net:
  class_path: Pruned
  init_args:
    net: {class_path: CNN, init_args: {num_classes: 10, widths: [8, 16]}}
    amount: 0.5
    image_shape: [1, 8, 8]
    base: base
"""


@pytest.mark.slow
def test_from_a_base_to_an_artefact(cli: Cli, workdir: Path) -> None:
    """Fit, resume, test and export; after the fit, without the base."""

    def run(*args: str) -> Any:
        done = cli(*args)
        assert done.code == 0, done.err
        return done

    small = ["--config", CNN_DIGITS, "--trainer.max_epochs", "2", "--data.shift", "0", "--model.schedule", "null"]
    run("fit", *small, "--model.net.widths", "[8, 16]", "--run_dir", "base")
    pruned = ["--config", "pruned.yaml"]
    Path("pruned.yaml").write_text("model:\n  init_args:" + PRUNED.replace("\n", "\n    "), encoding="utf-8")
    other = cli("fit", *small, *pruned, "--model.net.net.widths", "[8, 12]", "--run_dir", "other")
    assert other.code == 2
    assert "--model.net.base base: expected stages.1.0.weight of shape (12, 8, 3, 3), got (16, 8, 3, 3)" in other.err
    done = run("fit", *small, *pruned, "--run_dir", "run")
    assert "Pruned: 438 of 1,442 parameters" in done.err, done.err
    run("fit", *small, *pruned, "--run_dir", "half", "--trainer.max_epochs", "1")
    shutil.rmtree("base")
    run("fit", "--run_dir", "half", "--ckpt_path", "last", "--trainer.max_epochs", "2")
    whole, resumed = (load_run(f"{name}/checkpoints/last.ckpt").module.state_dict() for name in ("run", "half"))
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    measured = json.loads(Path("run/metrics.json").read_text())["test"]["test/accuracy"]
    assert f"test/accuracy {measured:.4g}" in run("test", "--ckpt_path", "run").out
    run("export", "--ckpt_path", "run", "--format", "onnx", "--output", "artefact", "--speed", "false")
    image = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        expected = load_run("run").module(image)
    [output] = Artefact("artefact").run({"image": image.numpy()}).values()
    np.testing.assert_allclose(output, expected.numpy(), rtol=0, atol=1e-5)
