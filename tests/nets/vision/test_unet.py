"""What every net must satisfy is in test_nets.py; here, what is particular to the U-Net."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from src.nets.vision.unet import UNet


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 8, 12), {"num_classes": 3, "widths": [4, 6, 8], "in_channels": 1}


def trained(**arguments: Any) -> UNet:
    """In float64, with running statistics away from 0 and 1 and no parameter at zero."""
    torch.manual_seed(0)
    net = UNet(**arguments).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        net.train()(torch.randn(4, net.encoder[0].get_submodule("0").in_channels, 16, 16, dtype=torch.float64))  # type: ignore[arg-type]
    return net.eval()


def level(x: Tensor, parts: nn.Module) -> Tensor:
    for i in (0, 3):
        norm = parts.get_submodule(str(i + 1))
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        x = F.conv2d(x, parts.get_parameter(f"{i}.weight"), padding=1)
        x = (x - norm.running_mean[:, None, None]) / (norm.running_var[:, None, None] + norm.eps).sqrt()
        x = (x * norm.weight[:, None, None] + norm.bias[:, None, None]).clamp(min=0)
    return x


def test_reference_logits() -> None:
    """Against the same sums written with nn.functional, level by level: which is joined with which, and how."""
    net = trained(num_classes=3, widths=[4, 5, 6], in_channels=2)
    image = torch.randn(2, 2, 8, 12, dtype=torch.float64)
    fine = level(image, net.encoder[0])
    middle = level(F.max_pool2d(fine, 2), net.encoder[1])
    coarse = level(F.max_pool2d(middle, 2), net.encoder[2])
    x = coarse
    for i, skipped in enumerate([middle, fine]):
        weight, bias = net.up[i].get_parameter("weight"), net.up[i].get_parameter("bias")
        up = torch.einsum("bchw,cdyx->bdhywx", x, weight).flatten(4, 5).flatten(2, 3) + bias[:, None, None]
        x = level(torch.cat([skipped, up], dim=1), net.decoder[i])
    expected = torch.einsum("bchw,kc->bkhw", x, net.head.weight[:, :, 0, 0]) + net.head.bias[:, None, None]  # type: ignore[index]
    torch.testing.assert_close(net(image), expected)


@pytest.mark.parametrize("size", [(1, 1), (5, 8), (8, 5), (7, 13)])
def test_any_size_is_that_of_the_image_with_its_border_repeated(size: tuple[int, int]) -> None:
    net, image = trained(widths=[4, 5, 6], in_channels=1), torch.randn(2, 1, *size, dtype=torch.float64)
    height, width = (-(-n // 4) * 4 for n in size)
    rows, columns = (torch.arange(n).clamp(max=k - 1) for n, k in zip((height, width), size, strict=True))
    whole = net(image[:, :, rows][:, :, :, columns])
    assert whole.shape == (2, 2, height, width)
    torch.testing.assert_close(net(image), whole[:, :, : size[0], : size[1]])


def test_parameters_of_the_papers_widths() -> None:
    """Ronneberger et al. 2015 have 23 convolutional layers."""
    with torch.device("meta"):
        net = UNet(num_classes=2, widths=[64, 128, 256, 512, 1024], in_channels=1)
    layers = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.ConvTranspose2d)]
    assert len(layers) == 23
    assert [module.out_channels for module in layers][-1] == 2
    weights = sum(module.weight.numel() for module in layers)
    assert weights == 18_838_080 + 2_785_280 + 9_400_320 + 128  # down, up-convolutions, up, the last


def test_one_level_is_a_plain_convolutional_net() -> None:
    net = UNet(widths=[4], in_channels=1).eval()
    image = torch.randn(1, 1, 5, 7)
    torch.testing.assert_close(net(image), net.head(net.encoder[0](image)))


def test_initial_activations_keep_their_second_moment() -> None:
    """He et al. 2015: E[x²] doubles in a convolution and is halved by ReLU. Without the norms, which would hide it."""
    torch.manual_seed(0)
    net = UNet(widths=[64, 64, 64], in_channels=64)
    for name, moment in {
        **{f"encoder.{i}.{j}": 2 for i in range(3) for j in (0, 3)},
        **{f"decoder.{i}.{j}": 2 for i in range(2) for j in (0, 3)},
        **{f"up.{i}": 1 for i in range(2)},
        "head": 1,
    }.items():
        layer: Any = net.get_submodule(name)
        y = layer(torch.randn(4, layer.in_channels, 32, 32))[:, :, 1:-1, 1:-1]  # zeros come in at the border
        rel = 0.3 if name == "head" else 0.1  # of two outputs alone
        assert y.square().mean().item() == pytest.approx(moment, rel=rel), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": []}, "widths: expected at least one level, got none"),
        ({"num_classes": 0}, r"expected counts of at least 1, got 0, 3, \[32, 64, 128, 256\]"),
        ({"in_channels": 0}, r"expected counts of at least 1, got 2, 0, \[32, 64, 128, 256\]"),
        ({"widths": [8, 0]}, r"expected counts of at least 1, got 2, 3, \[8, 0\]"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UNet(**arguments)
