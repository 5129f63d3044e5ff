"""What every net must satisfy is in test_nets.py; here, what is particular to the MLP."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.mlp import ACTIVATIONS, MLP, NORMS


def example(batch_size: int) -> tuple[Tensor, dict[str, Any]]:
    return torch.randn(batch_size, 1, 8, 8), {"widths": [16, 8]}


# from the definitions, not from torch
FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + (-x).exp()),
    "tanh": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
}


@pytest.mark.parametrize("norm", list(NORMS))
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_reference_outputs_in_float64(norm: Any, activation: Any) -> None:
    """Two hidden layers as matrix products, with the norm written out; in training mode, where statistics count."""
    torch.manual_seed(0)
    net = MLP(3, 6, [5, 4], norm=norm, activation=activation, dropout=0.0).double().train()
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -1, 1)
    inputs = torch.randn(7, 2, 3, dtype=torch.float64)
    weights = dict(net.named_parameters())
    x = inputs.reshape(7, 6)
    stride = 3 if norm == "none" else 4  # linear, norm, activation, dropout
    for first in (0, stride):
        x = x @ weights[f"hidden.{first}.weight"].T + weights.get(f"hidden.{first}.bias", torch.tensor(0.0))
        if norm != "none":
            over = 0 if norm == "batch" else 1
            mean = x.mean(over, keepdim=True)
            x = (x - mean) / ((x - mean).square().mean(over, keepdim=True) + 1e-5).sqrt()
            x = x * weights[f"hidden.{first + 1}.weight"] + weights[f"hidden.{first + 1}.bias"]
        x = FORMULAS[activation](x)
    torch.testing.assert_close(net(inputs), x @ weights["head.weight"].T + weights["head.bias"])


def test_every_activation_has_a_formula_here() -> None:
    assert FORMULAS.keys() == ACTIVATIONS.keys()


def test_no_width_makes_a_linear_model() -> None:
    net = MLP(num_classes=3, num_features=6, widths=[]).double()
    assert sum(parameter.numel() for parameter in net.parameters()) == 6 * 3 + 3
    x = torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(net(x), x @ net.head.weight.T + net.head.bias)


def test_inputs_of_any_shape_are_flattened() -> None:
    net = MLP(num_features=24).eval()
    x = torch.randn(5, 2, 3, 4)
    assert torch.equal(net(x), net(x.reshape(5, 24)))


@pytest.mark.parametrize(("norm", "biased"), [("batch", False), ("layer", True), ("none", True)])
def test_only_a_batch_norm_replaces_the_bias(norm: Any, biased: bool) -> None:
    """A layer norm subtracts the mean over the features, which leaves most of a bias."""
    net = MLP(widths=[8, 8], norm=norm)
    assert [layer.bias is not None for layer in net.hidden if isinstance(layer, nn.Linear)] == [biased] * 2


def test_initial_activations_keep_their_second_moment() -> None:
    """He et al. 2015: E[x²] after ReLU and the next matrix stays 2 · 1/2 = 1 times what it was."""
    torch.manual_seed(0)
    x = torch.randn(256, 512)
    for layer in MLP(num_features=512, widths=[512] * 5, norm="none", dropout=0.0).hidden:
        x = layer(x)
        if isinstance(layer, nn.Linear):
            moment = x.square().mean().item()
            assert 1.6 < moment < 2.4, f"second moment {moment:.3g} before a ReLU, expected 2"


@pytest.mark.parametrize(("activation", "expected"), [("tanh", 2 / (400 + 100)), ("relu", 2 / 400)])
def test_initial_variance_of_the_weights(activation: Any, expected: float) -> None:
    """Glorot & Bengio 2010: 2 / (in + out) for tanh and for the head; He et al. 2015: 2 / in for the ReLU family."""
    torch.manual_seed(0)
    net = MLP(num_classes=300, num_features=400, widths=[100], activation=activation, norm="none")
    hidden = net.hidden[0]
    assert isinstance(hidden, nn.Linear)
    assert hidden.weight.var().item() == pytest.approx(expected, rel=0.05)
    assert net.head.weight.var().item() == pytest.approx(2 / (100 + 300), rel=0.05)
    assert not hidden.bias.any()
    assert not net.head.bias.any()


def test_dropout_acts_on_every_hidden_layer() -> None:
    net = MLP(widths=[8, 8, 8], dropout=0.25)
    assert [layer.p for layer in net.hidden if isinstance(layer, nn.Dropout)] == [0.25] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, r"expected counts of at least 1, got 0, 64, \[128, 128\]"),
        ({"num_features": 0}, r"expected counts of at least 1, got 10, 0, \[128, 128\]"),
        ({"widths": [8, -1]}, r"expected counts of at least 1, got 10, 64, \[8, -1\]"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\), got -0.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLP(**arguments)
