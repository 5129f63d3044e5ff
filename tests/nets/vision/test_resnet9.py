"""What every net must satisfy is in test_nets.py; here, what is particular to ResNet9."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.vision.resnet9 import ResNet9


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 16, 16), {"in_channels": 1, "width": 2}


def test_size_is_that_of_the_nine_layers() -> None:
    widths = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    expected = sum(9 * c_in * c_out + 2 * c_out for c_in, c_out in widths) + 512 * 10
    assert sum(parameter.numel() for parameter in ResNet9().parameters()) == expected == 6_573_120


def test_each_stage_halves_the_resolution() -> None:
    net = ResNet9(in_channels=1, width=2)
    assert net.stages(net.stem(torch.randn(1, 1, 32, 32))).shape == (1, 16, 4, 4)


def test_logits_are_scaled() -> None:
    torch.manual_seed(0)
    image, nets = torch.randn(2, 3, 16, 16), [ResNet9(width=2, logit_scale=scale).eval() for scale in (1.0, 0.25)]
    nets[1].load_state_dict(nets[0].state_dict())
    torch.testing.assert_close(nets[1](image), nets[0](image) * 0.25)


@pytest.mark.parametrize("arguments", [{"num_classes": 0}, {"width": 0}, {"in_channels": 0}, {"logit_scale": 0.0}])
def test_arguments_out_of_range(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}: expected"):
        ResNet9(**arguments)
