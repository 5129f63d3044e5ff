"""Against torchvision's ResNet; what every net must satisfy is in test_nets.py."""

from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor

from src.nets.vision.resnet import ResNet


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 3, 8, 8), {"depth": 20, "width": 2}


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_is_torchvisions_with_its_weights(depth: int) -> None:
    torch.manual_seed(0)
    theirs = getattr(torchvision.models, f"resnet{depth}")(num_classes=7)
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # nothing at its start value
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.2, 0.4)
    ours = ResNet(num_classes=7, depth=depth)
    ours.load_state_dict(theirs.state_dict())
    image = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = theirs.eval()(image)
        found = ours.eval()(image)
    assert expected.std() > 1e-3
    assert (found - expected).abs().max() <= 1e-5 * max(1, expected.abs().max().item())


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.73)])
def test_cifar_nets_have_the_papers_size(depth: int, millions: float) -> None:
    """Table 6 of He et al. 2015; projections add 0.003 M to its shortcuts without weights."""
    with torch.device("meta"):
        net = ResNet(depth=depth)
    num = sum(parameter.numel() for parameter in net.parameters()) / 1e6
    assert abs(num - millions) < 0.008


@pytest.mark.parametrize(("depth", "num"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (152, 60_192_808)])
def test_number_of_parameters(depth: int, num: int) -> None:
    with torch.device("meta"):
        net = ResNet(num_classes=1000, depth=depth)
    assert sum(parameter.numel() for parameter in net.parameters()) == num


def test_small_stem_keeps_the_resolution() -> None:
    net = ResNet(depth=18, stem="cifar", in_channels=1, width=2)
    image = torch.randn(1, 1, 32, 32)
    assert net.maxpool(net.conv1(image)).shape == (1, 2, 32, 32)
    assert ResNet(depth=18, in_channels=1, width=2).conv1(image).shape == (1, 2, 16, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 19}, r"depth: expected one of 18, 20, 32, .*152, got 19"),
        ({"depth": 20, "stem": "imagenet"}, "stem: expected auto or cifar for depth 20, got imagenet"),
        ({"stem": "small"}, "stem: expected auto, imagenet or cifar for depth 18, got small"),
        ({"width": 0}, "width: expected at least 1, got 0"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResNet(**arguments)
