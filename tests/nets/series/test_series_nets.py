"""What every net of series does with its inputs: it uses all of them, and refuses others."""

from typing import Any

import pytest
import torch
from torch import nn

from src.nets.series.linear import DLinear, NLinear
from src.nets.series.patch_transformer import PatchTransformer
from src.nets.series.recurrent_forecaster import RecurrentForecaster
from tests.nets.series.inputs import COUNTS, windows

L, H, C = 16, 5, 2
SIZE: dict[str, Any] = {"look_back": L, "horizon": H, "num_channels": C}
each_net = pytest.mark.parametrize("net_class", [DLinear, NLinear, PatchTransformer, RecurrentForecaster])


def built(net_class: Any, **options: Any) -> nn.Module:
    """In float64, with no parameter at its initial value."""
    torch.manual_seed(0)
    net = net_class(**SIZE, **options).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


@each_net
@pytest.mark.parametrize("name", ["past", "past_covariates", "known_covariates", "static"])
def test_every_input_changes_the_forecast(net_class: Any, name: str) -> None:
    net, inputs = built(net_class, **COUNTS), windows(2, L, H, C, torch.float64)
    value = inputs[name].requires_grad_()
    (slope,) = torch.autograd.grad(net(**inputs).square().sum(), value)
    assert slope.abs().min() > 0


@each_net
def test_nothing_after_the_look_back_is_read(net_class: Any) -> None:
    longer = torch.randn(2, L + 1, C, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"look_back, num_channels: expected past \(B, 16, 2\), got \(B, 17, 2\)"):
        built(net_class)(longer)


@each_net
def test_covariates_are_neither_missing_nor_ignored(net_class: Any) -> None:
    inputs = windows(2, L, H, C, torch.float64)
    static = inputs.pop("static")
    with pytest.raises(ValueError, match=r"num_static: expected static \(B, 4\), got none"):
        built(net_class, **COUNTS)(**inputs)
    with pytest.raises(ValueError, match=r"num_static: expected static none, got \(B, 4\)"):
        built(net_class)(inputs["past"], static=static)
