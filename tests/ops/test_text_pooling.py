"""Pooling by hand."""

import pytest
import torch

from src.ops.text_pooling import drop_words, pool_text

X = torch.tensor([[[1.0, -2.0], [3.0, -4.0], [9.0, 9.0]], [[5.0, 6.0], [9.0, 9.0], [9.0, 9.0]], [[9.0, 9.0]] * 3])
MASK = torch.tensor([[True, True, False], [True, False, False], [False] * 3])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2.0, -3.0], [5.0, 6.0], [0.0, 0.0]]),
        ("max", [[3.0, -2.0], [5.0, 6.0], [0.0, 0.0]]),
        ("first", [[1.0, -2.0], [5.0, 6.0], [0.0, 0.0]]),
    ],
)
def test_pooling(pooling: str, expected: list[list[float]]) -> None:
    assert pool_text(X, MASK, pooling).tolist() == expected  # type: ignore[arg-type]


def test_nothing_that_is_not_a_number_comes_from_padding() -> None:
    x = torch.where(MASK[..., None], X, torch.nan)
    assert pool_text(x, MASK, "mean").isfinite().all()
    assert pool_text(x, MASK, "max").isfinite().all()


def test_words_are_dropped_as_a_whole() -> None:
    torch.manual_seed(0)
    dropped = drop_words(torch.ones(50, 60, 3), torch.ones(50, 60, dtype=torch.bool), 0.3) == 0
    assert torch.equal(dropped.all(dim=-1), dropped.any(dim=-1))
    assert abs(dropped.float().mean().item() - 0.3) < 0.03


def test_no_text_loses_all_its_words() -> None:
    torch.manual_seed(0)
    mask = torch.arange(4) < torch.randint(1, 5, (500, 1))
    kept_tokens = (drop_words(torch.ones(500, 4, 3), mask, 0.9)[..., 0] > 0) & mask
    assert kept_tokens.any(dim=1).all()
    assert kept_tokens.sum() < mask.sum()
