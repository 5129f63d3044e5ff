"""What every net must satisfy is in test_nets.py; here, linear nets against sums over single steps in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.nets.series.linear import DLinear, NLinear, moving_average
from tests.nets.series.inputs import COUNTS, windows

L, H, C, Q = 12, 5, 2, 3
SIZE: dict[str, Any] = {"look_back": L, "horizon": H, "num_channels": C}
each_net = pytest.mark.parametrize("net_class", [DLinear, NLinear])


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return windows(batch_size, L, H, C), {**SIZE, **COUNTS, "normalise": "revin", "individual": True}


def trained(net: nn.Module) -> Any:
    """In float64, with no parameter at its initial value."""
    torch.manual_seed(0)
    net = net.double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def slow_trend(series: list[float], kernel_size: int) -> list[float]:
    reach, last = kernel_size // 2, len(series) - 1
    return [
        sum(series[min(max(t + k, 0), last)] for k in range(-reach, reach + 1)) / kernel_size for t in range(last + 1)
    ]


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 25])  # the last one is longer than the window
def test_the_trend_is_a_moving_average_with_the_ends_repeated(kernel_size: int) -> None:
    x = torch.randn(2, L, C, dtype=torch.float64)
    expected = [[slow_trend(x[i, :, c].tolist(), kernel_size) for c in range(C)] for i in range(2)]
    torch.testing.assert_close(moving_average(x, kernel_size), torch.tensor(expected).transpose(1, 2).double())


@pytest.mark.parametrize("individual", [False, True])
def test_dlinear_maps_trend_and_remainder(individual: bool) -> None:
    net, past = trained(DLinear(**SIZE, individual=individual, kernel_size=5)), windows(2, L, H, C)["past"].double()
    forecast = net(past)
    for i in range(2):
        for c in range(C):
            own = c if individual else 0
            trend = torch.tensor(slow_trend(past[i, :, c].tolist(), 5)).double()
            expected = net.trend.maps[own].weight @ trend + net.trend.maps[own].bias
            expected = (
                expected + net.remainder.maps[own].weight @ (past[i, :, c] - trend) + net.remainder.maps[own].bias
            )
            torch.testing.assert_close(forecast[i, :, c], expected)


@pytest.mark.parametrize("individual", [False, True])
def test_nlinear_forecasts_changes_from_the_last_value(individual: bool) -> None:
    net, past = trained(NLinear(**SIZE, individual=individual)), windows(2, L, H, C)["past"].double()
    for c in range(C):
        layer = net.map.maps[c if individual else 0]
        last = past[:, -1:, c]
        expected = (past[:, :, c] - last) @ layer.weight.T + layer.bias + last
        torch.testing.assert_close(net(past)[:, :, c], expected)


def test_rlinear_standardises_each_window() -> None:
    net, past = trained(NLinear(**SIZE, normalise="revin")), windows(2, L, H, C)["past"].double()
    mean, deviation = past.mean(1, keepdim=True), (past.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    x = (past - mean) / deviation * net.norm.weight + net.norm.bias
    y = torch.einsum("blc,hl->bhc", x, net.map.maps[0].weight) + net.map.maps[0].bias[:, None]
    expected = (y - net.norm.bias) / net.norm.weight * deviation + mean
    torch.testing.assert_close(net(past), expected, rtol=1e-6, atol=1e-6)


@each_net
def test_covariates_add_a_linear_regression(net_class: Any) -> None:
    net, inputs = trained(net_class(**SIZE, **COUNTS, num_quantiles=Q)), windows(2, L, H, C, torch.float64)
    past = inputs["past"]
    time, effects = net.covariates.over_time.weight, net.covariates.effects.weight  # (H, L), (C Q, P + F + S)
    net.covariates = None
    plain = trained(net_class(**SIZE, num_quantiles=Q))
    plain.load_state_dict(net.state_dict())
    expected = plain(past)
    net = trained(net_class(**SIZE, **COUNTS, num_quantiles=Q))
    for i in range(2):
        for h in range(H):
            sums: list[Any] = [
                sum(time[h, t] * inputs["past_covariates"][i, t, p] for t in range(L))
                for p in range(COUNTS["num_past_covariates"])
            ]
            features = torch.cat([torch.stack(sums), inputs["known_covariates"][i, h], inputs["static"][i]])
            expected[i, h] += (effects @ features).view(C, Q)
    torch.testing.assert_close(net(**inputs), expected)


@each_net
def test_the_first_forecast_is_the_mean_of_the_window(net_class: Any) -> None:
    """Zeng et al. 2023 set all weights to 1 / L; covariates have no effect at first."""
    net, inputs = net_class(**SIZE, **COUNTS, normalise="none"), windows(3, L, H, C)
    mean = inputs["past"].mean(1, keepdim=True).expand(-1, H, -1)
    torch.testing.assert_close(net(**inputs), mean)


@each_net
def test_channels_do_not_mix(net_class: Any) -> None:
    net, past = trained(net_class(**SIZE)), torch.randn(2, L, C, dtype=torch.float64)
    changed = past.clone()
    changed[:, :, 1] += torch.randn(2, L, dtype=torch.float64)
    assert torch.equal(net(past)[:, :, 0], net(changed)[:, :, 0])
    torch.testing.assert_close(net(past.flip(-1)), net(past).flip(-1))


@each_net
def test_each_quantile_has_its_own_map(net_class: Any) -> None:
    net, past = trained(net_class(**SIZE, num_quantiles=Q)), torch.randn(2, L, C, dtype=torch.float64)
    forecast = net(past)
    assert forecast.shape == (2, H, C, Q)
    for q in range(Q):
        single = net_class(**SIZE).double()
        state = {name: value.view(H, Q, *value.shape[1:])[:, q] for name, value in net.state_dict().items()}
        single.load_state_dict(state)
        torch.testing.assert_close(single(past), forecast[..., q])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"look_back": 0}, "look_back: expected at least 1, got 0"),
        ({"num_quantiles": 0}, "num_quantiles: expected at least 1, got 0"),
        ({"normalise": "first"}, "normalise: expected none, last or revin, got first"),
    ],
)
@each_net
def test_arguments_out_of_range(net_class: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net_class(**options)


@pytest.mark.parametrize("kernel_size", [0, 4])
def test_a_moving_average_has_a_centre(kernel_size: int) -> None:
    with pytest.raises(ValueError, match=f"kernel_size: expected an odd number of steps, got {kernel_size}"):
        DLinear(kernel_size=kernel_size)
