"""Effects of covariates; their values are tested with the linear nets."""

import itertools

import pytest
import torch

from src.ops.covariates import CovariateMap

L, H, K = 6, 4, 3


@pytest.mark.parametrize("counts", list(itertools.product([0, 2], repeat=3))[1:])
def test_any_kind_of_covariates_alone(counts: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    covariates = CovariateMap(L, H, *counts, K).double()
    shapes = [(L, counts[0]), (H, counts[1]), (counts[2],)]
    inputs = [torch.randn(2, *shape, dtype=torch.float64) if 0 not in shape else None for shape in shapes]
    effects = covariates(*inputs)
    assert effects.shape == (2, H, K)
    assert effects.abs().max() == 0, "no effect before training"
    with torch.no_grad():
        covariates.effects.weight.fill_(1)
    expected = torch.zeros(2, H, K, dtype=torch.float64)
    past, known, static = inputs
    if past is not None:
        expected += past.mean(dim=1).sum(dim=1)[:, None, None]
    if known is not None:
        expected += known.sum(dim=2)[:, :, None]
    if static is not None:
        expected += static.sum(dim=1)[:, None, None]
    torch.testing.assert_close(covariates(*inputs), expected)
