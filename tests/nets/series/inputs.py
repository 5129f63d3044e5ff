"""Random windows for the nets of series."""

import torch
from torch import Tensor

COUNTS = {"num_past_covariates": 3, "num_known_covariates": 2, "num_static": 4}


def windows(
    batch_size: int, look_back: int, horizon: int, num_channels: int, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Inputs with the covariates of COUNTS."""
    return {
        "past": torch.randn(batch_size, look_back, num_channels, dtype=dtype).cumsum(1),
        "past_covariates": torch.randn(batch_size, look_back, COUNTS["num_past_covariates"], dtype=dtype),
        "known_covariates": torch.randn(batch_size, horizon, COUNTS["num_known_covariates"], dtype=dtype),
        "static": torch.randn(batch_size, COUNTS["num_static"], dtype=dtype),
    }
