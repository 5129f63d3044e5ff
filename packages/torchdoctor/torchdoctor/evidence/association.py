"""Measures how well inputs predict labels, with nearest neighbours and a linear fit."""

import numpy as np
import torch
from torch import Tensor

SAMPLES = 400
STRONG_ASSOCIATION = 8.0  # standard deviations over chance


def features(x: np.ndarray) -> np.ndarray:
    """Inputs as rows of at most 2000 features: pixels are subsampled, tokens counted."""
    if x.dtype.kind in "iu" and x.ndim == 2 and x.dtype != np.uint8 and 1 < x.max() < 2000 and x.min() >= 0:
        return np.stack([np.bincount(row, minlength=2000)[:2000] for row in x]).astype(np.float64)
    flat = x.reshape(len(x), -1).astype(np.float64)
    step = -(-flat.shape[1] // 2000)
    return np.nan_to_num(flat[:, ::step])


def association_strength(x: np.ndarray, y: np.ndarray) -> float:
    """The better learner's distance from chance, in standard deviations."""
    keep = np.random.RandomState(0).permutation(len(x))[:SAMPLES]
    x, y = x[keep], y[keep].astype(np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        return np.inf
    targets = np.eye(len(classes))[codes] if len(classes) <= 50 else (np.argsort(np.argsort(y)) / len(y))[:, None]
    rows, goal = torch.from_numpy((x - x.mean(0)) / (x.std(0) + 1e-6)), torch.from_numpy(targets - targets.mean(0))
    kernel = rows @ rows.T / rows.shape[1]
    near = _agreement(_neighbours(kernel) @ goal, goal)
    return near if near > STRONG_ASSOCIATION else max(near, _agreement(_linear(kernel, goal), goal))


def _neighbours(kernel: Tensor) -> Tensor:
    """Weights that average each sample's five nearest neighbours."""
    squares = kernel.diagonal()
    distances = (squares[:, None] + squares[None] - 2 * kernel).fill_diagonal_(torch.inf)
    return torch.zeros_like(kernel).scatter_(1, distances.topk(5, largest=False).indices, 0.2)


def _linear(kernel: Tensor, goal: Tensor) -> Tensor:
    """Dual ridge regression, cross-validated over five folds."""
    predicted, fold = torch.zeros_like(goal), torch.arange(len(goal)) % 5
    for number in range(5):
        rest, part = (fold != number).nonzero()[:, 0], (fold == number).nonzero()[:, 0]
        ridge = kernel[rest][:, rest] + 0.1 * torch.eye(len(rest), dtype=kernel.dtype)
        predicted[part] = kernel[part][:, rest] @ torch.linalg.solve(ridge, goal[rest])
    return predicted


def _agreement(predicted: Tensor, goal: Tensor) -> float:
    """The z-score of predictions times targets, against a hundred permutations of the targets."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(goal), generator=generator) for _ in range(100)]
    chance = torch.stack([(predicted * goal[order]).sum() for order in orders])
    return ((predicted * goal).sum() - chance.mean()).item() / (chance.std().item() + 1e-12)
