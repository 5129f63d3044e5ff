"""Linear effects of covariates on a forecast."""

import torch
from torch import Tensor, nn


class CovariateMap(nn.Module):
    """A linear regression of every forecast step on covariates.

    The features of step h are the known covariates of this step, the static features, and for each past covariate a
    weighted sum over the look-back, whose weights depend on h and are shared by all past covariates. One linear map,
    the same for every step, turns these features into an effect on each channel and quantile.

    Args:
        look_back: number of past steps, L.
        horizon: number of steps to forecast, H.
        num_past_covariates: number of covariates over the look-back, P.
        num_known_covariates: number of covariates over the horizon, F.
        num_static: number of features that do not change over time, S.
        num_outputs: values of a forecast step, K: channels times quantiles.

    Shapes:
        past_covariates (B, L, P), known_covariates (B, H, F) and static (B, S), None where the count is 0
        → effects (B, H, K).
    """

    def __init__(
        self,
        look_back: int,
        horizon: int,
        num_past_covariates: int,
        num_known_covariates: int,
        num_static: int,
        num_outputs: int,
    ) -> None:
        super().__init__()
        self.horizon = horizon
        self.over_time = nn.Linear(look_back, horizon, bias=False) if num_past_covariates else None
        self.effects = nn.Linear(num_past_covariates + num_known_covariates + num_static, num_outputs, bias=False)
        if self.over_time is not None:
            nn.init.constant_(self.over_time.weight, 1 / look_back)  # a mean over the look-back
        nn.init.zeros_(self.effects.weight)  # the net starts as one without covariates

    def forward(self, past_covariates: Tensor | None, known_covariates: Tensor | None, static: Tensor | None) -> Tensor:
        features = []
        if self.over_time is not None and past_covariates is not None:
            features.append(self.over_time(past_covariates.transpose(1, 2)).transpose(1, 2))  # (B, H, P)
        if known_covariates is not None:
            features.append(known_covariates)  # (B, H, F)
        if static is not None:
            features.append(static.unsqueeze(1).expand(-1, self.horizon, -1))  # (B, H, S)
        return self.effects(torch.cat(features, dim=-1))  # (B, H, K)
