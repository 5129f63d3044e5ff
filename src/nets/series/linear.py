"""Linear forecasts of series (Zeng et al. 2023): DLinear and NLinear."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool1d, pad

from src.ops.covariates import CovariateMap
from src.ops.reversible_norm import ReversibleNorm
from src.ops.series_inputs import check_inputs, input_shapes


class DLinear(nn.Module):
    """Splits a window into trend and remainder, and forecasts each by a linear map over time (Zeng et al. 2023).

    The trend is a moving average; the first and last value are repeated beyond the ends. Covariates add a linear
    regression to the forecast: each step on its known covariates, the static features, and weighted sums of the past
    covariates over the look-back.

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_channels: number of series that are forecast together, C.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.
        num_quantiles: values for each step and channel, Q; above 1 for the quantile loss.
        normalise: none; last, subtracts the last value; revin, standardises each window. Undone in the forecast,
            effects of covariates included.
        individual: whether each channel has its own maps; if not, all channels share them.
        kernel_size: number of steps in the moving average, odd.

    Shapes:
        past (B, L, C), past_covariates (B, L, P), known_covariates (B, H, F), static (B, S) → (B, H, C), or
        (B, H, C, Q) for Q above 1.

    Raises:
        ValueError: an argument is out of range, or an input is missing, superfluous or of another shape.
    """

    def __init__(
        self,
        look_back: int = 96,
        horizon: int = 24,
        num_channels: int = 1,
        num_past_covariates: int = 0,
        num_known_covariates: int = 0,
        num_static: int = 0,
        num_quantiles: int = 1,
        normalise: Literal["none", "last", "revin"] = "none",
        individual: bool = False,
        kernel_size: int = 25,
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd number of steps, got {kernel_size}")
        covariates = (num_past_covariates, num_known_covariates, num_static)
        self.shapes = input_shapes(look_back, horizon, num_channels, *covariates)
        self.kernel_size = kernel_size
        self.norm = ReversibleNorm(num_channels, normalise)
        num_maps = num_channels if individual else 1
        self.trend = _TimeMap(look_back, horizon, num_quantiles, num_maps)
        self.remainder = _TimeMap(look_back, horizon, num_quantiles, num_maps)
        num_outputs = num_channels * num_quantiles
        self.covariates = CovariateMap(look_back, horizon, *covariates, num_outputs) if any(covariates) else None

    def forward(
        self,
        past: Tensor,
        past_covariates: Tensor | None = None,
        known_covariates: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        given = {"past_covariates": past_covariates, "known_covariates": known_covariates, "static": static}
        check_inputs(self.shapes, past=past, **given)
        x, level, scale = self.norm(past)  # (B, L, C)
        trend = moving_average(x, self.kernel_size)  # (B, L, C)
        y = self.trend(trend) + self.remainder(x - trend)  # (B, H, C, Q)
        if self.covariates is not None:
            y = y + self.covariates(**given).unflatten(-1, y.shape[2:])
        return _without_single(self.norm.restore(y, level, scale))


class NLinear(nn.Module):
    """Subtracts the last value, forecasts by one linear map over time, and adds it again (Zeng et al. 2023).

    With normalise revin it is RLinear (Li et al. 2023). Covariates add a linear regression to the forecast: each step
    on its known covariates, the static features, and weighted sums of the past covariates over the look-back.

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_channels: number of series that are forecast together, C.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.
        num_quantiles: values for each step and channel, Q; above 1 for the quantile loss.
        normalise: none; last, subtracts the last value; revin, standardises each window. Undone in the forecast,
            effects of covariates included.
        individual: whether each channel has its own map; if not, all channels share one.

    Shapes:
        past (B, L, C), past_covariates (B, L, P), known_covariates (B, H, F), static (B, S) → (B, H, C), or
        (B, H, C, Q) for Q above 1.

    Raises:
        ValueError: an argument is out of range, or an input is missing, superfluous or of another shape.
    """

    def __init__(
        self,
        look_back: int = 96,
        horizon: int = 24,
        num_channels: int = 1,
        num_past_covariates: int = 0,
        num_known_covariates: int = 0,
        num_static: int = 0,
        num_quantiles: int = 1,
        normalise: Literal["none", "last", "revin"] = "last",
        individual: bool = False,
    ) -> None:
        super().__init__()
        covariates = (num_past_covariates, num_known_covariates, num_static)
        self.shapes = input_shapes(look_back, horizon, num_channels, *covariates)
        self.norm = ReversibleNorm(num_channels, normalise)
        self.map = _TimeMap(look_back, horizon, num_quantiles, num_channels if individual else 1)
        num_outputs = num_channels * num_quantiles
        self.covariates = CovariateMap(look_back, horizon, *covariates, num_outputs) if any(covariates) else None

    def forward(
        self,
        past: Tensor,
        past_covariates: Tensor | None = None,
        known_covariates: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        given = {"past_covariates": past_covariates, "known_covariates": known_covariates, "static": static}
        check_inputs(self.shapes, past=past, **given)
        x, level, scale = self.norm(past)  # (B, L, C)
        y = self.map(x)  # (B, H, C, Q)
        if self.covariates is not None:
            y = y + self.covariates(**given).unflatten(-1, y.shape[2:])
        return _without_single(self.norm.restore(y, level, scale))


class _TimeMap(nn.Module):
    """A linear map over time, shared by all channels or one for each: (B, L, C) → (B, H, C, Q)."""

    def __init__(self, look_back: int, horizon: int, num_quantiles: int, num_maps: int) -> None:
        super().__init__()
        if num_quantiles < 1:
            raise ValueError(f"num_quantiles: expected at least 1, got {num_quantiles}")
        self.size = (horizon, num_quantiles)
        self.maps = nn.ModuleList(nn.Linear(look_back, horizon * num_quantiles) for _ in range(num_maps))
        for layer in self.maps:  # Zeng et al. 2023: every forecast starts as the mean of the window
            assert isinstance(layer, nn.Linear)
            nn.init.constant_(layer.weight, 1 / look_back)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)  # (B, C, L)
        if len(self.maps) == 1:
            y = self.maps[0](x)  # (B, C, H Q)
        else:
            y = torch.stack([layer(x[:, c]) for c, layer in enumerate(self.maps)], dim=1)  # (B, C, H Q)
        return y.unflatten(-1, self.size).transpose(1, 2)  # (B, H, C, Q)


def moving_average(x: Tensor, kernel_size: int) -> Tensor:
    """Centred mean over an odd number of steps of (B, L, C), with the first and last value repeated beyond the ends."""
    x = x.transpose(1, 2)  # (B, C, L)
    x = pad(x, (kernel_size // 2, kernel_size // 2), mode="replicate")
    return avg_pool1d(x, kernel_size, stride=1).transpose(1, 2)  # (B, L, C)


def _without_single(y: Tensor) -> Tensor:
    """(B, H, C) for a single value for each step and channel."""
    return y.squeeze(-1) if y.shape[-1] == 1 else y
