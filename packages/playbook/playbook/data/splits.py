"""Parts of a data set that never overlap."""

from collections.abc import Sequence

import torch


def split_indices(num_samples: int, shares: Sequence[float], seed: int = 0) -> list[list[int]]:
    """Splits 0 … num_samples - 1 into disjoint parts, in a fixed random order.

    Args:
        num_samples: number of samples.
        shares: share of each part; they add up to 1.
        seed: seed of the order, independent of the training's seed.
    """
    if abs(sum(shares) - 1) > 1e-6 or min(shares) < 0:
        raise ValueError(f"shares: expected non-negative numbers that add up to 1, got {list(shares)}")
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed)).tolist()
    ends = [round(num_samples * sum(shares[: i + 1])) for i in range(len(shares) - 1)] + [num_samples]
    return [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]
