"""What every net must satisfy is in test_nets.py; here, what is particular to the CNN."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.vision.cnn import CNN


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 8, 8), {"widths": [4, 8]}


def test_each_stage_halves_the_resolution() -> None:
    image = torch.randn(2, 1, 32, 32)
    assert CNN(widths=[4, 8, 16]).stages(image).shape == (2, 16, 4, 4)


def test_the_smallest_image_is_two_to_the_number_of_stages() -> None:
    net = CNN(widths=[4, 8, 16]).eval()
    assert net(torch.randn(2, 1, 8, 9)).isfinite().all()
    with pytest.raises(RuntimeError, match="Output size is too small"):
        net(torch.randn(2, 1, 7, 9))


def test_initial_activations_keep_their_second_moment() -> None:
    """He et al. 2015: E[x²] doubles in a convolution and is halved by ReLU. Without the norms, which would hide it."""
    torch.manual_seed(0)
    x = torch.randn(8, 64, 32, 32)
    for stage in CNN(in_channels=64, widths=[64, 64, 64, 64]).stages:
        assert isinstance(stage, nn.Sequential)
        x = stage[0](x).relu()
        moment = x.square().mean().item()
        assert 0.7 < moment < 1.3, f"second moment {moment:.3g}, expected 1"


def test_initial_variance_is_that_of_the_outputs() -> None:
    """He et al. 2015 in the direction of the gradient: 2 / (9 · channels out), whatever comes in."""
    torch.manual_seed(0)
    for stage in CNN(in_channels=32, widths=[64, 16]).stages:
        weight = stage.get_parameter("0.weight")
        assert weight.var().item() == pytest.approx(2 / (9 * len(weight)), rel=0.05)


def test_training_drops_features_and_evaluation_does_not() -> None:
    torch.manual_seed(0)
    net, features = CNN(widths=[1000], num_classes=1, dropout=0.25), torch.ones(1, 1000)
    dropped = (net.head[0].train()(features) == 0).float().mean().item()
    assert 0.2 < dropped < 0.3, dropped
    assert torch.equal(net.head[0].eval()(features), features)


def test_reference_logits() -> None:
    """Against the same sum written with nn.functional, in float64."""
    torch.manual_seed(0)
    net, image = CNN(widths=[3, 5], dropout=0.0).double(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    net.train()(torch.randn(16, 1, 8, 8, dtype=torch.float64))  # running statistics away from 0 and 1
    x = image
    for stage in net.stages:
        conv, norm = stage.get_submodule("0"), stage.get_submodule("1")
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        nn.init.uniform_(norm.weight)
        nn.init.uniform_(norm.bias)
        x = nn.functional.conv2d(x, conv.weight, padding=1)
        x = (x - norm.running_mean[:, None, None]) / (norm.running_var[:, None, None] + norm.eps).sqrt()
        x = x * norm.weight[:, None, None] + norm.bias[:, None, None]
        x = nn.functional.max_pool2d(x.relu(), 2)
    head = net.head[1]
    assert isinstance(head, nn.Linear)
    torch.testing.assert_close(net.eval()(image), x.mean((2, 3)) @ head.weight.T + head.bias)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": []}, "widths: expected at least one stage, got none"),
        ({"num_classes": 0}, r"expected counts of at least 1, got 0, 1, \[32, 64\]"),
        ({"in_channels": 0}, r"expected counts of at least 1, got 10, 0, \[32, 64\]"),
        ({"widths": [8, 0]}, r"expected counts of at least 1, got 10, 1, \[8, 0\]"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\), got -0.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CNN(**arguments)
