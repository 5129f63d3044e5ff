"""Baselines against NumPy's least squares on all windows at once, and against a loop over steps."""

import numpy as np
import pytest
import torch
from torch import Tensor

from src.ops.forecast_baselines import LeastSquares, baseline_scores, seasonal_naive

L, H, C = 6, 4, 2


def windows(num_windows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Past (B, L, C) and target (B, H, C) of a noisy oscillation with a level, in float32."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(num_windows + L + H - 1)[:, None]
    series = torch.sin(time / torch.tensor([1.3, 2.1])) + 5 + 0.3 * torch.randn(len(time), C, generator=generator)
    both = series.unfold(0, L + H, 1).transpose(1, 2)  # (B, L + H, C)
    return both[:, :L], both[:, L:]


def batches(num_windows: int, batch_size: int, seed: int = 0) -> list[tuple[dict[str, Tensor], Tensor]]:
    past, target = windows(num_windows, seed)
    cuts = range(0, num_windows, batch_size)
    return [({"past": past[i : i + batch_size]}, target[i : i + batch_size]) for i in cuts]


@pytest.mark.parametrize("period", [1, 3, 6])
def test_seasonal_naive_repeats_the_last_season(period: int) -> None:
    past, _ = windows(5)
    forecast = seasonal_naive(past, 9, period)
    for h in range(9):
        step = L + h
        while step >= L:
            step -= period
        assert torch.equal(forecast[:, h], past[:, step])


@pytest.mark.parametrize("period", [0, 7])
def test_a_season_fits_into_the_look_back(period: int) -> None:
    with pytest.raises(ValueError, match=f"period: expected 1 to 6 steps, as in the look-back, got {period}"):
        seasonal_naive(windows(2)[0], H, period)


@pytest.mark.parametrize("subtract_last", [False, True])
def test_least_squares_equals_numpy(subtract_last: bool) -> None:
    baseline = LeastSquares(subtract_last)
    for inputs, target in batches(50, 7):
        baseline.add(inputs["past"], target)
    (past, target), (new, _) = windows(50), windows(9, seed=1)

    def rows(values: Tensor, level: Tensor) -> np.ndarray:
        return (values - level * subtract_last).double().transpose(1, 2).flatten(0, 1).numpy()

    def with_ones(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.ones((len(values), 1))], axis=1)

    last = past.double()[:, -1:]
    weight = np.linalg.lstsq(with_ones(rows(past, last)), rows(target, last), rcond=None)[0]  # (L + 1, H)
    last = new.double()[:, -1:]
    expected = (with_ones(rows(new, last)) @ weight).reshape(9, C, H).transpose(0, 2, 1)
    np.testing.assert_allclose(baseline.forecast(new), expected + last.numpy() * subtract_last, rtol=1e-8)


def test_further_windows_change_the_fit() -> None:
    baseline, (past, target) = LeastSquares(), windows(30)
    baseline.add(past[:20], target[:20])
    before = baseline.forecast(past)
    baseline.add(past[20:], target[20:])
    assert (baseline.forecast(past) - before).abs().max() > 1e-3


def test_a_constant_series_is_continued() -> None:
    baseline, past = LeastSquares(), torch.full((8, L, 1), 3.0)
    baseline.add(past, past[:, :H])
    torch.testing.assert_close(baseline.forecast(past), past[:, :H].double())


def test_no_windows() -> None:
    with pytest.raises(ValueError, match="expected windows to fit, got none"):
        LeastSquares().forecast(windows(2)[0])
    with pytest.raises(ValueError, match="expected batches to measure, got none"):
        baseline_scores(batches(9, 4), [], period=3)


@pytest.mark.parametrize("batch_size", [4, 30])
def test_scores_count_every_value_of_every_window(batch_size: int) -> None:
    scores = baseline_scores(batches(30, 7), batches(30, batch_size, seed=1), period=3)
    past, target = windows(30, seed=1)
    error = (seasonal_naive(past, H, 3) - target).double()
    naive = {"mse": error.square().mean().item(), "mae": error.abs().mean().item()}
    assert scores["seasonal_naive"] == pytest.approx(naive)
    baseline = LeastSquares()
    baseline.add(*windows(30))
    error = baseline.forecast(past) - target
    fitted = {"mse": error.square().mean().item(), "mae": error.abs().mean().item()}
    assert scores["least_squares"] == pytest.approx(fitted)
    assert scores["least_squares"]["mse"] < scores["seasonal_naive"]["mse"]
    assert scores["least_squares_last"]["mse"] != scores["least_squares"]["mse"]
