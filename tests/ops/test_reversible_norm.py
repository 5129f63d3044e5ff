"""Reversible normalisation against NumPy, and its inverse."""

from typing import Any

import numpy as np
import pytest
import torch

from src.ops.reversible_norm import ReversibleNorm

C = 3


def built(kind: Any) -> ReversibleNorm:
    torch.manual_seed(0)
    norm = ReversibleNorm(C, kind).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return norm


@pytest.mark.parametrize("kind", ["none", "last", "revin"])
def test_restore_is_the_inverse(kind: Any) -> None:
    norm, x = built(kind), 5 + 2 * torch.randn(4, 10, C, dtype=torch.float64)
    normalised, level, scale = norm(x)
    quantiles = torch.stack([normalised, normalised], dim=-1)  # (B, L, C, 2)
    restored = norm.restore(quantiles, level, scale)
    for q in range(2):
        torch.testing.assert_close(restored[..., q], x, rtol=1e-8, atol=1e-8)


def test_revin_standardises_over_time() -> None:
    norm, x = built("revin"), 5 + 2 * torch.randn(4, 10, C, dtype=torch.float64)
    values = x.numpy()
    expected = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(values.var(axis=1, keepdims=True) + 1e-5)
    expected = expected * norm.weight.detach().numpy() + norm.bias.detach().numpy()
    np.testing.assert_allclose(norm(x)[0].detach().numpy(), expected, rtol=1e-12)


def test_last_makes_the_last_step_zero() -> None:
    x = torch.randn(4, 10, C)
    normalised, level, _ = built("last").float()(x)
    assert normalised[:, -1].abs().max() == 0
    torch.testing.assert_close(normalised + level, x)


@pytest.mark.parametrize("kind", ["last", "revin"])
def test_no_gradient_flows_through_level_and_scale(kind: Any) -> None:
    x = torch.randn(4, 10, C, dtype=torch.float64, requires_grad=True)
    norm = built(kind)
    normalised, level, scale = norm(x)
    assert not level.requires_grad
    assert not scale.requires_grad
    (slope,) = torch.autograd.grad(normalised.sum(), x)
    weight = norm.weight / scale if kind == "revin" else torch.ones_like(x)
    torch.testing.assert_close(slope, weight.expand_as(x))


def test_a_constant_window_stays_finite() -> None:
    norm, x = built("revin"), torch.full((2, 10, C), 7.0, dtype=torch.float64)
    normalised, level, scale = norm(x)
    torch.testing.assert_close(normalised, norm.bias.expand(2, 10, C))
    torch.testing.assert_close(norm.restore(normalised.unsqueeze(-1), level, scale).squeeze(-1), x)
