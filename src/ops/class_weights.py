"""Weights of classes, and the weights of targets by their classes."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from playbook import UserError, nearest


def inverse_frequency(counts: Sequence[int]) -> list[float]:
    """Weights each class by N / (K n), for its n of N samples and the K classes that occur.

    All classes then have the same total weight, and the mean weight of a sample is 1. Classes without samples weigh 0.

    Args:
        counts: number of samples of each class, not all 0.
    """
    num_present = sum(count > 0 for count in counts)
    return [sum(counts) / (num_present * count) if count else 0.0 for count in counts]


def check_weights(weights: Mapping[str, float]) -> None:
    """Raises ValueError for a weight that is below 0 or not finite."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"class_weights: expected finite weights of at least 0, got {weight} for {name}")


def weights_by_name(weights: Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Sorts weights in the order of the classes; classes without a weight get 1.

    Raises:
        UserError: a name is not a class, or no class has a weight above 0.
    """
    weights = {str(name): weight for name, weight in weights.items()}  # YAML reads 3 as a number
    for name in weights:
        if name not in classes:
            known = ", ".join(classes[:5]) + (f" and {len(classes) - 5} more" if len(classes) > 5 else "")
            raise UserError(f"class_weights: no class is called {name}, expected {known}{nearest(name, classes)}")
    ordered = [float(weights.get(name, 1.0)) for name in classes]
    if not any(ordered):
        raise UserError("class_weights: every class weighs 0, expected at least one weight above 0")
    return ordered


def weights_of(target: Tensor, weight: Tensor, ignore_index: int | None = None) -> Tensor:
    """The weight of each target.

    Args:
        target: class numbers (B, …), or probabilities (B, K), whose weight is the expected weight of the class.
        weight: of the classes (K,).
        ignore_index: class number that weighs 0. Defaults to none.

    Returns:
        Weights (B, …), or (B,) for probabilities.
    """
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))  # half precision is too short for their sum
    if target.is_floating_point():
        return target.to(weight.dtype) @ weight
    # clamped, as ignore_index may be none of them; others are told of where the loss is computed
    weights = weight[target.clamp(0, len(weight) - 1)]
    return weights if ignore_index is None else weights * (target != ignore_index)


def divided(total: Tensor, weight: Tensor) -> Tensor:
    """A sum divided by its weight; unchanged for a weight of 0, so that the gradient stays finite."""
    return total / torch.where(weight > 0, weight, 1)
