"""Losses of logits (B, K, …) against class indices (B, …) or a teacher's logits (B, K, …), in float32 or better."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from src.ops.class_weights import divided, weights_of


def cross_entropy_loss(
    logits: Tensor, target: Tensor, ignore_index: int | None = None, weight: Tensor | None = None
) -> Tensor:
    """Negative log-likelihood of the target, averaged over all pixels.

    Args:
        logits: (B, K, …).
        target: class of every pixel (B, …), from 0 to K - 1.
        ignore_index: class of pixels to ignore. Defaults to none.
        weight: weights of the classes (K,) for the average over pixels. Defaults to 1 each.

    Returns:
        A scalar; 0 if every pixel is ignored, for which PyTorch's own mean is NaN.
    """
    ignored = -100 if ignore_index is None else ignore_index  # PyTorch's default, which is no class
    logits = precise(logits)
    weight = None if weight is None else weight.to(logits.dtype)
    total = cross_entropy(logits, target, weight, ignore_index=ignored, reduction="sum")
    if weight is None:
        return total / (target != ignored).sum().clamp(min=1)
    return divided(total, weights_of(target, weight, ignore_index).sum())


def weighted_cross_entropy(
    logits: Tensor, target: Tensor, class_weight: Tensor | None = None, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor | float]:
    """The cross-entropy as a mean over samples by the weights of their classes, and the sum of these weights.

    torch's own mean over probabilities is one over samples, whatever they weigh.

    Args:
        logits: (B, K).
        target: class numbers (B,) or probabilities (B, K).
        class_weight: of the classes (K,). Defaults to 1 for each.
        label_smoothing: share of the target that is spread over all classes, in [0, 1].
    """
    if class_weight is None:
        return cross_entropy(logits, target, label_smoothing=label_smoothing), len(target)
    total = cross_entropy(
        logits, target, class_weight.to(logits.dtype), label_smoothing=label_smoothing, reduction="sum"
    )
    weight = weights_of(target, class_weight).sum()
    return divided(total, weight), weight


def dice_loss(logits: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """One minus the Dice coefficient of probabilities and target, averaged over the classes in the target.

    The soft Dice of Milletari et al. 2016 with the denominator of Drozdzal et al. 2016, over the whole batch:
    1 - 2 Σ p t / (Σ p + Σ t). Classes that do not occur in the batch have no coefficient; predicting them lowers the
    coefficient of the true class.

    Args:
        logits: (B, K, …).
        target: class of every pixel (B, …), from 0 to K - 1.
        ignore_index: class of pixels to ignore. Defaults to none.

    Returns:
        A scalar in [0, 1]; 0 if every pixel is ignored.
    """
    probability, is_class, counts = _places(logits, target, ignore_index)
    size = is_class.sum(dim=1)  # (K,)
    dice = 2 * (probability * is_class).sum(dim=1) / ((probability * counts).sum(dim=1) + size).clamp(min=1e-12)
    return _mean_of_present(1 - dice, size)


def focal_loss(
    logits: Tensor,
    target: Tensor,
    ignore_index: int | None = None,
    weight: Tensor | None = None,
    gamma: float = 2.0,
) -> Tensor:
    """Cross-entropy with less weight on confident pixels (Lin et al. 2017), averaged over all pixels.

    -(1 - p)^γ log p, where p is the probability of the target, times the weight of its class, the paper's α, if given.

    Args:
        logits: (B, K, …).
        target: class of every pixel (B, …), from 0 to K - 1.
        ignore_index: class of pixels to ignore. Defaults to none.
        weight: weights of the classes (K,) for the average over pixels. Defaults to 1 each.
        gamma: exponent of the weight; 0 gives cross-entropy, the paper uses 2.

    Returns:
        A scalar; 0 if every pixel is ignored.
    """
    log_p, is_class, counts = _places(logits, target, ignore_index, log=True)
    log_p = (log_p * is_class).sum(dim=0)  # (P,), 0 where nothing counts
    missing = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny)  # 0 has no slope below γ = 1
    if weight is None:
        return -(missing**gamma * log_p).sum() / counts.sum().clamp(min=1)
    weights = weights_of(target.flatten(), weight.to(log_p.dtype), ignore_index)  # (P,)
    return divided(-(weights * missing**gamma * log_p).sum(), weights.sum())


def lovasz_softmax(logits: Tensor, target: Tensor, ignore_index: int | None = None) -> Tensor:
    """The Lovász extension of one minus the Jaccard index (Berman et al. 2018), averaged over the target's classes.

    The errors of a class are 1 - p at its own pixels and p elsewhere. They are sorted from the largest, and each is
    weighted by how much the Jaccard loss grows if its pixel is wrong as well as those before it, over the whole batch.
    Sorting is slow: 212 ms with the gradient for 32 × 11 × 64², against 8 for cross-entropy (one busy CPU thread,
    medians of 9).

    Args:
        logits: (B, K, …).
        target: class of every pixel (B, …), from 0 to K - 1.
        ignore_index: class of pixels to ignore. Defaults to none.

    Returns:
        A scalar in [0, 1]; 0 if every pixel is ignored.
    """
    probability, is_class, counts = _places(logits, target, ignore_index)
    error = (is_class.float() - probability).abs() * counts  # (K, P)
    size = is_class.sum(dim=1)  # (K,)
    return _mean_of_present((error * _jaccard_growth(error.detach(), is_class)).sum(dim=1), size)


def distillation_loss(logits: Tensor, taught: Tensor, temperature: float, counts: Tensor | None = None) -> Tensor:
    """T² KL(softmax(taught / T) ‖ softmax(logits / T)), averaged over samples or pixels (Hinton et al. 2015).

    The factor T² keeps the size of the gradient, which the temperature T divides twice.

    Args:
        logits: of the student (B, K, …).
        taught: logits of the teacher (B, K, …).
        temperature: T, above 0.
        counts: whether a sample or pixel enters the mean (B, …). Defaults to all of them.

    Returns:
        A scalar; 0 if none counts.
    """
    student, teacher = ((precise(x) / temperature).log_softmax(dim=1) for x in (logits, taught))
    divergence = kl_div(student, teacher, reduction="none", log_target=True).sum(dim=1)  # (B, …)
    if counts is None:
        return temperature**2 * divergence.mean()
    return temperature**2 * (divergence * counts).sum() / counts.sum().clamp(min=1)


def _jaccard_growth(error: Tensor, is_class: Tensor) -> Tensor:
    """How much every pixel adds to the Jaccard loss of its class, after those with larger errors (K, P)."""
    order = error.argsort(dim=1, descending=True)
    is_class = is_class.gather(1, order)
    size = is_class.sum(dim=1, keepdim=True)  # (K, 1)
    # after n mistakes: the places left of the class, over those places and all that were taken for it
    num_left, union = size - is_class.cumsum(dim=1), size + (~is_class).cumsum(dim=1)  # (K, P)
    # differences of 1 - num_left / union, without subtracting numbers that are almost the same
    growth = torch.where(is_class, 1, num_left.to(error.dtype) / (union - 1).clamp(min=1)) / union
    return torch.zeros_like(error).scatter(1, order, growth)  # from the order of errors to that of places


def _places(
    logits: Tensor, target: Tensor, ignore_index: int | None, log: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities or their logarithms (K, P), whether each pixel is of a class (K, P), whether it counts (P,).

    Ignored pixels are of no class; removing them instead would make the host wait for the device.
    """
    logits, target = precise(logits.transpose(0, 1).flatten(1)), target.flatten()  # (K, P), (P,)
    counts = torch.ones_like(target, dtype=torch.bool) if ignore_index is None else target != ignore_index
    is_class = (target == torch.arange(len(logits), device=target.device)[:, None]) & counts
    return (logits.log_softmax(dim=0) if log else logits.softmax(dim=0)), is_class, counts


def precise(x: Tensor) -> Tensor:
    """The same in float32, or in float64 if it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))  # half precision is too short for sums over places


def _mean_of_present(loss: Tensor, size: Tensor) -> Tensor:
    present = size > 0
    return (loss * present).sum() / present.sum().clamp(min=1)
