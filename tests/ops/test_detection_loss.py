"""Losses against their formulas, a number at a time."""

import math

import torch
from torch.autograd import gradcheck

from src.ops.detection_loss import distribution_focal_loss, varifocal_loss


def test_varifocal_loss_is_the_formula() -> None:
    for logit in (-6.0, -0.5, 0.0, 3.0):
        p = 1 / (1 + math.exp(-logit))
        for q in (0.0, 0.3, 1.0):
            positive = -q * (q * math.log(p) + (1 - q) * math.log(1 - p))
            expected = torch.tensor(positive if q > 0 else -0.75 * p**2 * math.log(1 - p), dtype=torch.float64)
            found = varifocal_loss(torch.tensor(logit, dtype=torch.float64), torch.tensor(q, dtype=torch.float64))
            torch.testing.assert_close(found, expected)


def test_varifocal_loss_is_lowest_at_the_quality() -> None:
    quality = torch.tensor([0.2, 0.7], dtype=torch.float64)
    logits = quality.logit().requires_grad_()
    varifocal_loss(logits, quality).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12


def test_distribution_focal_loss_is_the_formula() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 5, dtype=torch.float64)
    numbers = [0.0, 0.25, 2.0, 3.9, 4.0, 7.0]  # the last one lies outside
    found = distribution_focal_loss(logits, torch.tensor(numbers, dtype=torch.float64))
    for row, number, loss in zip(logits.tolist(), numbers, found.tolist(), strict=True):
        y = min(number, 4.0)
        left = min(int(y), 3)
        total = sum(math.exp(logit) for logit in row)
        log_s = [logit - math.log(total) for logit in row]
        expected = -((left + 1 - y) * log_s[left] + (y - left) * log_s[left + 1])
        assert abs(loss - expected) < 1e-12, number


def test_distribution_focal_loss_is_lowest_where_the_mean_is_the_number() -> None:
    """Proportions 0.7 and 0.3 on 2 and 3 for 2.3; the loss is then their entropy."""
    probability = torch.tensor([[1e-12, 1e-12, 0.7, 0.3]], dtype=torch.float64)
    number = torch.tensor([2.3], dtype=torch.float64)
    entropy = -(0.7 * math.log(0.7) + 0.3 * math.log(0.3))
    torch.testing.assert_close(
        distribution_focal_loss(probability.log(), number), torch.full((1,), entropy, dtype=torch.float64)
    )
    logits = probability.log().requires_grad_()
    distribution_focal_loss(logits, number).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-9


def test_gradients() -> None:
    torch.manual_seed(0)
    logits, quality = torch.randn(2, 4, dtype=torch.float64, requires_grad=True), torch.rand(2, 4, dtype=torch.float64)
    quality[0] = 0
    assert gradcheck(lambda x: varifocal_loss(x, quality), logits)
    assert gradcheck(lambda x: distribution_focal_loss(x, torch.tensor([1.3, 2.0], dtype=torch.float64)), logits)
