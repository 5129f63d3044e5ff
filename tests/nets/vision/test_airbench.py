"""What every net must satisfy is in test_nets.py; here, what is particular to Airbench."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.vision.airbench import Airbench


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 16, 16), {"in_channels": 1, "width": 2}


def test_size_is_that_of_six_convolutions_and_a_head() -> None:
    widths = [(24, 64), (64, 64), (64, 256), (256, 256), (256, 256), (256, 256)]
    expected = 2 * 24 + sum(9 * c_in * c_out + 2 * c_out for c_in, c_out in widths) + 256 * 10
    assert sum(parameter.numel() for parameter in Airbench().parameters()) == expected == 1_972_528


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_patches_keep_all_that_is_in_the_image(channels: int) -> None:
    """The basis is orthonormal: transposed, it gives every patch back."""
    basis = Airbench(in_channels=channels).get_buffer("stem.0.basis").double().flatten(1)  # (8 C, 4 C)
    torch.testing.assert_close(basis[: 4 * channels], -basis[4 * channels :])
    unit = torch.eye(4 * channels, dtype=torch.float64)
    torch.testing.assert_close(basis[: 4 * channels].T @ basis[: 4 * channels], unit, rtol=0, atol=1e-6)


def test_the_stem_whitens_images_whose_neighbours_are_alike() -> None:
    torch.manual_seed(0)
    brightness = torch.nn.functional.avg_pool2d(torch.randn(64, 1, 34, 34), 3, stride=1)
    image = brightness + 0.3 * torch.nn.functional.avg_pool2d(torch.randn(64, 3, 34, 34), 3, stride=1)
    stem = Airbench().train().stem
    seen = stem[1](stem[0](image))[:, :12].transpose(0, 1).flatten(1)  # (12, B · 31 · 31)
    correlation = torch.corrcoef(seen) - torch.eye(12)
    raw = torch.nn.functional.unfold(image, 2).transpose(0, 1).flatten(1)
    assert (torch.corrcoef(raw) - torch.eye(12)).abs().max() > 0.5
    assert correlation.abs().max() < 0.1


def test_a_convolution_begins_by_passing_on_what_it_gets() -> None:
    conv, image = Airbench(in_channels=1, width=16).get_submodule("stages.0.0"), torch.randn(2, 8, 6, 6)
    torch.testing.assert_close(conv(image)[:, :8], image)


def test_logits_are_scaled() -> None:
    torch.manual_seed(0)
    image, nets = torch.randn(2, 3, 16, 16), [Airbench(width=2, logit_scale=scale).eval() for scale in (1.0, 0.25)]
    nets[1].load_state_dict(nets[0].state_dict())
    torch.testing.assert_close(nets[1](image), nets[0](image) * 0.25)


@pytest.mark.parametrize("arguments", [{"num_classes": 0}, {"width": 0}, {"in_channels": 0}, {"logit_scale": 0.0}])
def test_arguments_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}: expected"):
        Airbench(**arguments)
