"""What every net must satisfy is in test_nets.py; here, patches, channels and blocks of the patch Transformer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward

from src.nets.series.patch_transformer import PatchTransformer
from tests.nets.series.inputs import COUNTS, windows

L, H, C, Q = 12, 5, 2, 3
SMALL: dict[str, Any] = {"patch_size": 4, "stride": 2, "dim": 8, "depth": 2, "num_heads": 2, "hidden": 6}
SIZE: dict[str, Any] = {"look_back": L, "horizon": H, "num_channels": C, **SMALL}


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return windows(batch_size, L, H, C), {**SIZE, **COUNTS, "dropout": 0.1}


def trained(**options: Any) -> PatchTransformer:
    """In float64, with running statistics away from 0 and 1 and no parameter at its initial value."""
    torch.manual_seed(0)
    net = PatchTransformer(**{**SIZE, "dropout": 0.0, **options}).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        net.train()(torch.randn(8, L, C, dtype=torch.float64))
    return net.eval()


@pytest.mark.parametrize(
    ("look_back", "patch_size", "stride", "num_patches"),
    [(336, 16, 8, 42), (512, 16, 8, 64), (96, 16, 8, 12), (13, 4, 2, 6), (4, 4, 3, 2)],  # Nie et al. 2023: 42 and 64
)
def test_number_of_patches(look_back: int, patch_size: int, stride: int, num_patches: int) -> None:
    net = PatchTransformer(look_back, patch_size=patch_size, stride=stride)
    past = torch.randn(3, look_back, 1)
    patches = net.patches(past)
    assert patches.shape == (3, 1, num_patches, patch_size)
    assert len(net.position) == num_patches
    series = torch.cat([past[1, :, 0], past[1, -1:, 0].expand(stride)])
    for n in range(num_patches):
        assert torch.equal(patches[1, 0, n], series[n * stride : n * stride + patch_size])
    assert num_patches * stride + patch_size > len(series), "a further patch would fit"


def test_channels_do_not_mix_and_share_weights() -> None:
    net, past = trained(), torch.randn(2, L, C, dtype=torch.float64)
    with torch.no_grad():
        net.norm.weight.fill_(1.2)  # the only parameters of a channel
        net.norm.bias.fill_(0.3)
    changed = past.clone()
    changed[:, :, 1] += torch.randn(2, L, dtype=torch.float64)
    assert torch.equal(net(past)[:, :, 0], net(changed)[:, :, 0])
    assert not torch.allclose(net(past)[:, :, 1], net(changed)[:, :, 1])
    torch.testing.assert_close(net(past.flip(-1)), net(past).flip(-1))


def test_reference_forecast() -> None:
    """Against torch's own attention and batch norms written out, a channel at a time."""
    net, past = trained(normalise="last", num_quantiles=Q), torch.randn(3, L, C, dtype=torch.float64)
    weights = net.state_dict()
    for c in range(C):
        series = past[:, :, c] - past[:, -1:, c]
        series = torch.cat([series, series[:, -1:].expand(-1, 2)], dim=1)
        x = torch.stack([series[:, n : n + 4] for n in range(0, L - 1, 2)], dim=1)  # (B, N, 4)
        x = x @ weights["projection.weight"].T + weights["projection.bias"] + weights["position"]
        for b in range(2):
            own = {name.removeprefix(f"blocks.{b}."): value for name, value in weights.items()}
            x = batch_norm(x + attention(x, own), own, "attention_norm")
            hidden = nn.functional.gelu(x @ own["mlp.0.weight"].T + own["mlp.0.bias"])
            x = batch_norm(x + hidden @ own["mlp.3.weight"].T, own, "mlp_norm")
        y = x.flatten(1) @ weights["head.weight"].T + weights["head.bias"]
        expected = y.view(3, H, Q) + past[:, -1:, c, None]
        torch.testing.assert_close(net(past)[:, :, c], expected)


def attention(x: Tensor, own: dict[str, Tensor]) -> Tensor:
    x = x.transpose(0, 1)  # (N, B, D)
    bias = torch.zeros(8, dtype=x.dtype)
    joint = (own["qkv.weight"], own["qkv.bias"], None, None, False, 0.0, own["out.weight"], bias)
    return multi_head_attention_forward(x, x, x, 8, 2, *joint, training=False)[0].transpose(0, 1)


def batch_norm(x: Tensor, own: dict[str, Tensor], name: str) -> Tensor:
    mean, variance = own[f"{name}.running_mean"], own[f"{name}.running_var"]
    return (x - mean) / (variance + 1e-5).sqrt() * own[f"{name}.weight"] + own[f"{name}.bias"]


def test_revin_follows_level_and_scale_of_each_window() -> None:
    """A window that is shifted and stretched has the same forecast, shifted and stretched."""
    net, past = trained(), 10 * torch.randn(2, L, C, dtype=torch.float64)
    torch.testing.assert_close(net(40 * past + 700), 40 * net(past) + 700, rtol=1e-5, atol=1e-3)


def test_covariates_change_the_forecast_linearly() -> None:
    net, inputs = trained(normalise="none").eval(), windows(2, L, H, C, torch.float64)
    with_covariates = PatchTransformer(**SIZE, **COUNTS, normalise="none").double().eval()
    with_covariates.load_state_dict(net.state_dict(), strict=False)
    assert with_covariates.covariates is not None
    torch.testing.assert_close(with_covariates(**inputs), net(inputs["past"]))  # before training
    nn.init.normal_(with_covariates.covariates.effects.weight)
    effect = with_covariates(**inputs) - net(inputs["past"])
    doubled = {name: value if name == "past" else 2 * value for name, value in inputs.items()}
    torch.testing.assert_close(with_covariates(**doubled) - net(inputs["past"]), 2 * effect)
    assert effect.abs().min() > 1e-6


def test_golden_forecast() -> None:
    torch.manual_seed(0)
    net = PatchTransformer(**SIZE).eval()
    forecast = net(torch.linspace(-1, 1, 2 * L * C).view(2, L, C).sin())
    expected = [0.258011, -0.494171, -0.674280, 0.166054, -0.729423]
    torch.testing.assert_close(forecast[0, :, 1].tolist(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"look_back": 8, "patch_size": 9}, "patch_size: expected at most look_back 8, got 9"),
        ({"dim": 10, "num_heads": 4}, "dim: expected a multiple of num_heads 4, got 10"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchTransformer(**options)
