"""Losses of detectors that torchvision.ops does not have."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

NEGATIVE_WEIGHT, FOCUS = 0.75, 2.0  # α and γ of Zhang et al. 2021, section 3.3


def varifocal_loss(logits: Tensor, quality: Tensor) -> Tensor:
    """Cross-entropy with a box's quality, weighted by it, or by α p^γ if it is 0 (Zhang et al. 2021, eq. 2).

    The few predictions with an object are weighted by how good they are, the many without one by how wrong they are.

    Args:
        logits: logits of the score p, any shape.
        quality: quality of the box in [0, 1], the same shape.

    Returns:
        The same shape.
    """
    positive = quality * binary_cross_entropy_with_logits(logits, quality, reduction="none")
    return torch.where(quality > 0, positive, NEGATIVE_WEIGHT * logits.sigmoid() ** FOCUS * softplus(logits))


def distribution_focal_loss(logits: Tensor, number: Tensor) -> Tensor:
    """Cross-entropy with the two integers next to a number, weighted by proximity (Li et al. 2020, eq. 6).

    Args:
        logits: logits of the integers 0 … R - 1, (N, R), R at least 2.
        number: target (N,), clamped to [0, R - 1].

    Returns:
        (N,)
    """
    number = number.clamp(0, logits.shape[1] - 1)
    below = number.long().clamp(max=logits.shape[1] - 2)
    weight = torch.stack([below + 1 - number, number - below], dim=1)  # (N, 2)
    return -(weight * logits.log_softmax(1).gather(1, torch.stack([below, below + 1], dim=1))).sum(1)
