"""Losses of semantic segmentation: logits (B, K, …) against class indices (B, …), in float32 or better."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def cross_entropy_loss(logits: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """Minus the logarithm of the target's probability, mean over all places.

    Args:
        logits: (B, K, …).
        target: class of every place (B, …), from 0 to K - 1.
        ignore_index: class of places that do not count; all count when left out.

    Returns:
        A scalar, 0 if no place counts; PyTorch's own mean is then not a number.
    """
    ignored = -100 if ignore_index is None else ignore_index  # PyTorch's default, which is no class
    total = cross_entropy(_precise(logits), target, ignore_index=ignored, reduction="sum")
    return total / (target != ignored).sum().clamp(min=1)


def dice_loss(logits: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """One minus the Dice coefficient of probabilities and target, mean over the classes of the target.

    Soft Dice of Milletari et al. 2016 with sums of p + t below, as Drozdzal et al. 2016 have it. Over the whole batch:
    1 - 2 Σ p t / (Σ p + Σ t). Classes that the batch lacks have no coefficient; what is predicted as one of them is
    missing from another.

    Args:
        logits: (B, K, …).
        target: class of every place (B, …), from 0 to K - 1.
        ignore_index: class of places that do not count; all count when left out.

    Returns:
        A scalar in [0, 1], 0 if no place counts.
    """
    probability, is_class, counts = _places(logits, target, ignore_index)
    size = is_class.sum(dim=1)  # (K,)
    dice = 2 * (probability * is_class).sum(dim=1) / ((probability * counts).sum(dim=1) + size).clamp(min=1e-12)
    return _mean_of_present(1 - dice, size)


def focal_loss(logits: Tensor, target: Tensor, ignore_index: int | None = None, gamma: float = 2.0) -> Tensor:
    """Cross-entropy in which places count less the better they are known (Lin et al. 2017), mean over all places.

    -(1 - p)^γ log p, where p is the probability of the target.

    Args:
        logits: (B, K, …).
        target: class of every place (B, …), from 0 to K - 1.
        ignore_index: class of places that do not count; all count when left out.
        gamma: 0 is cross-entropy; 2 in the paper.

    Returns:
        A scalar, 0 if no place counts.
    """
    log_p, is_class, counts = _places(logits, target, ignore_index, log=True)
    log_p = (log_p * is_class).sum(dim=0)  # (P,), 0 where nothing counts
    missing = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny)  # 0 has no slope below γ = 1
    return -(missing**gamma * log_p).sum() / counts.sum().clamp(min=1)


def lovasz_softmax(logits: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """The Lovász extension of one minus the Jaccard index (Berman et al. 2018), mean over the classes of the target.

    For a class, errors are 1 - p where it is right and p elsewhere. Sorted from the largest, each counts by how much
    the Jaccard loss grows when its place is mistaken beside those before it. Over the whole batch. Sorting takes its
    time: 212 ms with the gradient for 32 × 11 × 64², cross-entropy 8 (one busy CPU thread, medians of 9).

    Args:
        logits: (B, K, …).
        target: class of every place (B, …), from 0 to K - 1.
        ignore_index: class of places that do not count; all count when left out.

    Returns:
        A scalar in [0, 1], 0 if no place counts.
    """
    probability, is_class, counts = _places(logits, target, ignore_index)
    error = (is_class.float() - probability).abs() * counts  # (K, P)
    size = is_class.sum(dim=1)  # (K,)
    return _mean_of_present((error * _jaccard_growth(error.detach(), is_class)).sum(dim=1), size)


def _jaccard_growth(error: Tensor, is_class: Tensor) -> Tensor:
    """By how much every place adds to the Jaccard loss of its class, after those with larger errors (K, P)."""
    order = error.argsort(dim=1, descending=True)
    is_class = is_class.gather(1, order)
    size = is_class.sum(dim=1, keepdim=True)  # (K, 1)
    # after n mistakes: the places left of the class, over those places and all that were taken for it
    left, union = size - is_class.cumsum(dim=1), size + (~is_class).cumsum(dim=1)  # (K, P)
    # differences of 1 - left / union, without subtracting numbers that are almost the same
    growth = torch.where(is_class, 1, left.to(error.dtype) / (union - 1).clamp(min=1)) / union
    return torch.zeros_like(error).scatter(1, order, growth)  # from the order of errors to that of places


def _places(
    logits: Tensor, target: Tensor, ignore_index: int | None, log: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities or their logarithms (K, P), whether each place is of a class (K, P), whether it counts (P,).

    Those that do not count are of no class; taking them out instead would make the host wait for the device.
    """
    logits, target = _precise(logits.transpose(0, 1).flatten(1)), target.flatten()  # (K, P), (P,)
    counts = torch.ones_like(target, dtype=torch.bool) if ignore_index is None else target != ignore_index
    is_class = (target == torch.arange(len(logits), device=target.device)[:, None]) & counts
    return (logits.log_softmax(dim=0) if log else logits.softmax(dim=0)), is_class, counts


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))  # half precision is too short for sums over places


def _mean_of_present(loss: Tensor, size: Tensor) -> Tensor:
    present = size > 0
    return (loss * present).sum() / present.sum().clamp(min=1)
