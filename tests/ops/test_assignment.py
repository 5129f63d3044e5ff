"""Task-aligned assignment against a loop written from the paper's text."""

import math

import pytest
import torch
from torch import Tensor

from src.ops.assignment import task_aligned

Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(seed: int, b: int = 3, m: int = 4, n: int = 40, k: int = 3) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    scores, overlaps = (torch.rand(b, *size, generator=generator, dtype=torch.float64) for size in ((n, k), (m, n)))
    overlaps = overlaps**2  # most of them small
    candidates = torch.rand(b, m, n, generator=generator) < 0.5
    candidates[0, 2:] = False  # two objects, filled up to four
    overlaps[0, 2:] = torch.nan  # 0 / 0 where a predicted box has no extent either
    candidates[1] = False  # an image without objects
    return scores, overlaps, candidates, torch.randint(k, (b, m), generator=generator)


def loop(scores: Tensor, overlaps: Tensor, candidates: Tensor, labels: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Image by image, object by object, prediction by prediction."""
    num_images, num_objects, num_predictions = overlaps.shape
    owner = torch.full((num_images, num_predictions), -1)
    quality = torch.zeros(num_images, num_predictions, dtype=torch.float64)
    for b in range(num_images):
        rank, wanted = {}, {}
        for m in range(num_objects):
            allowed = [n for n in range(num_predictions) if candidates[b, m, n]]
            for n in allowed:
                rank[m, n] = scores[b, n, labels[b, m]].item() * overlaps[b, m, n].item() ** 6
            largest = sorted((overlaps[b, m, n].item() for n in allowed), reverse=True)[:top_k]
            count = max(1, math.floor(sum(largest)))
            wanted[m] = sorted(allowed, key=lambda n: -rank[m, n])[:count]
        for n in range(num_predictions):
            claims = [m for m in range(num_objects) if n in wanted[m]]
            if claims:
                owner[b, n] = max(claims, key=lambda m: overlaps[b, m, n].item())
        for m in range(num_objects):
            own = [n for n in range(num_predictions) if owner[b, n] == m]
            for n in own:
                best_rank, best_overlap = max(rank[m, i] for i in own), max(overlaps[b, m, i].item() for i in own)
                quality[b, n] = rank[m, n] / best_rank * best_overlap
    return owner, quality


@pytest.mark.parametrize("top_k", [1, 5, 10, 100])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loop(seed: int, top_k: int) -> None:
    given = problem(seed)
    owner, quality = task_aligned(*given, top_k=top_k)
    expected_owner, expected_quality = loop(*given, top_k=top_k)
    assert torch.equal(owner, expected_owner)
    torch.testing.assert_close(quality, expected_quality)
    assert (owner >= 0).any()
    assert torch.equal(owner >= 0, quality > 0)


def test_conflicts_are_met_and_go_to_the_larger_overlap() -> None:
    scores, labels = torch.ones(1, 2, 1), torch.zeros(1, 2, dtype=torch.long)
    overlaps = torch.tensor([[[0.9, 0.1], [0.8, 0.2]]])  # both objects like prediction 0 better
    owner, quality = task_aligned(scores, overlaps, torch.ones(1, 2, 2, dtype=torch.bool), labels, top_k=1)
    assert owner.tolist() == [[0, -1]], "the second object stays without: it had one wish"
    torch.testing.assert_close(quality, torch.tensor([[0.9, 0.0]]))


def test_more_overlap_takes_more_predictions() -> None:
    scores, labels = torch.ones(1, 8, 1), torch.zeros(1, 1, dtype=torch.long)
    everywhere = torch.ones(1, 1, 8, dtype=torch.bool)
    for overlap, count in [(0.1, 1), (0.26, 2), (0.9, 7)]:
        owner, _ = task_aligned(scores, torch.full((1, 1, 8), overlap), everywhere, labels, top_k=8)
        assert (owner == 0).sum() == count, overlap


def test_the_rank_counts_score_and_overlap() -> None:
    """(0.5, 0.8) against (1, 0.7): 0.5 · 0.8⁶ = 0.131 is more than 0.7⁶ = 0.118."""
    scores, overlaps = torch.tensor([[[0.5], [1.0]]]), torch.tensor([[[0.8, 0.7]]])
    both, labels = torch.ones(1, 1, 2, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.long)
    assert task_aligned(scores, overlaps, both, labels)[0].tolist() == [[0, -1]]
    scores[0, 0] = 0.4
    assert task_aligned(scores, overlaps, both, labels)[0].tolist() == [[-1, 0]]


def test_vanishing_overlaps_stay_finite() -> None:
    scores, labels = torch.full((1, 3, 1), 1e-3), torch.zeros(1, 1, dtype=torch.long)
    owner, quality = task_aligned(scores, torch.full((1, 1, 3), 1e-8), torch.ones(1, 1, 3, dtype=torch.bool), labels)
    assert (owner == 0).sum() == 1
    assert quality.isfinite().all()
