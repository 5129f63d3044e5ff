"""What every net must satisfy is in test_nets.py; here, the recurrent forecaster against single steps."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.series.recurrent_forecaster import RecurrentForecaster
from tests.nets.series.inputs import COUNTS, windows

L, H, C, Q = 7, 5, 2, 3
SIZE: dict[str, Any] = {"look_back": L, "horizon": H, "num_channels": C, "hidden": 6, "context": 4}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return windows(batch_size, L, H, C), {**SIZE, **COUNTS, "num_layers": 2}


def built(**options: Any) -> RecurrentForecaster:
    torch.manual_seed(0)
    return RecurrentForecaster(**{**SIZE, **COUNTS, **options}).double().eval()


@pytest.mark.parametrize(("kind", "cell_class"), [("lstm", nn.LSTMCell), ("gru", nn.GRUCell)])
def test_reference_forecast(kind: Any, cell_class: Any) -> None:
    """A cell step by step, then the MLP for each step of the horizon."""
    net = built(kind=kind, normalise="last", num_quantiles=Q)
    inputs = windows(3, L, H, C, torch.float64)
    cell = cell_class(C + COUNTS["num_past_covariates"], 6).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in net.layers.state_dict().items()})
    last, state = inputs["past"][:, -1:], None
    for t in range(L):
        state = cell(torch.cat([inputs["past"][:, t] - last[:, 0], inputs["past_covariates"][:, t]], dim=1), state)
    final = state[0] if isinstance(state, tuple) else state
    assert isinstance(final, Tensor)
    contexts = net.contexts(torch.cat([final, inputs["static"]], dim=1)).clamp(min=0).view(3, H, 4)
    for h in range(H):
        features = torch.cat([contexts[:, h], inputs["known_covariates"][:, h]], dim=1)
        expected = net.head[2](net.head[0](features).clamp(min=0)).view(3, C, Q) + last[:, 0, :, None]
        torch.testing.assert_close(net(**inputs)[:, h], expected)


def test_a_known_covariate_changes_its_own_step_alone() -> None:
    net, inputs = built(), windows(2, L, H, C, torch.float64)
    changed = {**inputs, "known_covariates": inputs["known_covariates"].clone()}
    changed["known_covariates"][:, 2] -= 3
    change = (net(**changed) - net(**inputs)).abs().amax(dim=(0, 2))
    assert (change > 0).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(("kind", "num_gates"), [("lstm", 4), ("gru", 3)])
def test_initialisation(kind: Any, num_gates: int) -> None:
    layers = built(kind=kind).layers
    for gate in layers.weight_hh_l0.split(6):
        torch.testing.assert_close(gate @ gate.T, torch.eye(6, dtype=gate.dtype), atol=1e-6, rtol=0)
    biases = layers.bias_ih_l0 + layers.bias_hh_l0
    assert biases.split(6)[1].tolist() == [float(kind == "lstm")] * 6, "only an LSTM has a gate that forgets"
    assert biases.sum() == (6 if kind == "lstm" else 0)
    assert len(biases) == 6 * num_gates


def test_revin_follows_level_and_scale_of_each_window() -> None:
    net, inputs = built(), windows(2, L, H, C, torch.float64)
    inputs["past"] = 10 * inputs["past"]
    moved = {**inputs, "past": 40 * inputs["past"] + 700}
    torch.testing.assert_close(net(**moved), 40 * net(**inputs) + 700, rtol=1e-5, atol=1e-3)


def test_golden_forecast() -> None:
    torch.manual_seed(0)
    net = RecurrentForecaster(**SIZE).eval()
    forecast = net(torch.linspace(-1, 1, 2 * L * C).view(2, L, C).sin())
    expected = [-0.472040, -0.477667, -0.484311, -0.450803, -0.451113]
    torch.testing.assert_close(forecast[0, :, 1].tolist(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_static": -1}, "num_static: expected at least 0, got -1"),
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"kind": "rnn"}, "kind: expected one of lstm, gru, got rnn"),
        ({"dropout": -0.1}, r"dropout: expected a probability in \[0, 1\), got -0.1"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecurrentForecaster(**options)
