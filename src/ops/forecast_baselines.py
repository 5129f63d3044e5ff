"""Forecasts to compare a net with: the season before, and least squares over the look-back in closed form."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def seasonal_naive(past: Tensor, horizon: int, period: int) -> Tensor:
    """Repeats the last season.

    Args:
        past: (B, L, C).
        horizon: number of steps to forecast, H.
        period: steps of a season, such as 24 hours, at most L.

    Returns:
        (B, H, C).

    Raises:
        ValueError: the period is below 1 or above L.
    """
    if not 1 <= period <= past.shape[1]:
        raise ValueError(f"period: expected 1 to {past.shape[1]} steps, as in the look-back, got {period}")
    steps = torch.arange(horizon, device=past.device) % period - period  # counted from the end
    return past[:, steps]


class LeastSquares:
    """The linear map with intercept from the last L values to the next H, shared by all channels, of least squares.

    The normal equations are summed over batches of windows in float64, so that their memory does not depend on the
    number of windows. Where they have many solutions, as for a constant series, the smallest one is taken.

    Args:
        subtract_last: whether to subtract the last value of a window first and add it to the forecast, as NLinear does.
    """

    def __init__(self, subtract_last: bool = False) -> None:
        self.subtract_last = subtract_last
        self._sums: tuple[Tensor, Tensor] | None = None  # (L + 1, L + 1) and (L + 1, H)
        self._weight: Tensor | None = None  # (L + 1, H)

    def add(self, past: Tensor, target: Tensor) -> None:
        """Adds windows.

        Args:
            past: (B, L, C).
            target: (B, H, C).
        """
        features, level = self._features(past)
        values = (target.double() - level).transpose(1, 2).flatten(0, 1)  # (B C, H)
        squares, products = features.T @ features, features.T @ values
        if self._sums is None:
            self._sums = squares, products
        else:
            self._sums = self._sums[0] + squares, self._sums[1] + products
        self._weight = None

    def forecast(self, past: Tensor) -> Tensor:
        """Forecasts (B, H, C) of windows (B, L, C), in float64.

        Raises:
            ValueError: no windows were added.
        """
        features, level = self._features(past)
        forecast = (features @ self._solution()).unflatten(0, (len(past), -1))  # (B, C, H)
        return forecast.transpose(1, 2) + level

    def _solution(self) -> Tensor:
        """Weights (L + 1, H) of the windows so far."""
        if self._weight is not None:
            return self._weight
        if self._sums is None:
            raise ValueError("least squares: expected windows to fit, got none")
        squares, products = (part.cpu() for part in self._sums)  # the driver for any rank has no CUDA version
        weight = torch.linalg.lstsq(squares, products, driver="gelsd").solution.to(self._sums[0].device)
        self._weight = weight
        return weight

    def _features(self, past: Tensor) -> tuple[Tensor, Tensor]:
        """Values and a one for each window and channel, (B C, L + 1), and the level that was subtracted, (B, 1, C)."""
        past = past.double()
        level = past[:, -1:] if self.subtract_last else torch.zeros_like(past[:, -1:])
        values = (past - level).transpose(1, 2).flatten(0, 1)  # (B C, L)
        return torch.cat([values, torch.ones_like(values[:, :1])], dim=1), level


def baseline_scores(train: Iterable[Any], test: Iterable[Any], period: int) -> dict[str, dict[str, float]]:
    """Errors of the baselines on a test set, for comparison with a net's test/mse and test/mae.

    Args:
        train: batches `(inputs, target)` to fit, with `past` (B, L, C) among the inputs and targets (B, H, C).
        test: batches to measure, likewise.
        period: steps of a season, at most L.

    Returns:
        By `seasonal_naive`, `least_squares` and `least_squares_last`, which subtracts the last value: `mse` and `mae`
        over all values.

    Raises:
        ValueError: the period is out of range, or there are no batches.
    """
    fitted = {"least_squares": LeastSquares(), "least_squares_last": LeastSquares(subtract_last=True)}
    for inputs, target in train:
        for baseline in fitted.values():
            baseline.add(inputs["past"], target)
    sums: dict[str, dict[str, float]] = {}
    count = 0
    for inputs, target in test:
        past = inputs["past"]
        forecasts = {"seasonal_naive": seasonal_naive(past, target.shape[1], period)}
        forecasts |= {name: baseline.forecast(past) for name, baseline in fitted.items()}
        count += target.numel()
        for name, forecast in forecasts.items():
            error = forecast.double() - target.double()
            own = sums.setdefault(name, {"mse": 0.0, "mae": 0.0})
            own["mse"] += error.square().sum().item()
            own["mae"] += error.abs().sum().item()
    if not count:
        raise ValueError("test: expected batches to measure, got none")
    return {name: {measure: total / count for measure, total in own.items()} for name, own in sums.items()}
