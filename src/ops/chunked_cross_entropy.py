"""Cross-entropy after a linear head, for vocabularies whose logits do not fit into memory."""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

IGNORED = -100


def chunked_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, chunk: int, ignore_index: int = IGNORED
) -> Tensor:
    """The cross-entropy of `features @ weight.T`, summed over rows, with the logits of `chunk` rows at a time.

    The loss and both gradients of a chunk are computed together, in the forward pass, so that its logits are freed
    before the next chunk (Wijmans et al. 2024; Hsu et al. 2024): memory grows with chunk × V, not with N × V. The
    backward pass only scales the gradients. Precision is that of a linear layer and F.cross_entropy: under autocast,
    products are in its precision, and softmax is in float32. Divide by `(target != ignore_index).sum()` for the mean.

    On a GPU, softmax, loss and gradient are one Triton kernel.

    Args:
        features: (N, D).
        weight: (V, D), as of nn.Linear.
        target: (N,) int64, in [0, V) or `ignore_index`.
        chunk: number of rows whose logits are computed at a time, at least 1.
        ignore_index: target of rows that do not count.

    Returns:
        () in float32, or in float64 if the features are.

    Raises:
        ValueError: `chunk` is less than 1.
        IndexError: a target is out of range. The kernel gives nan instead.
        RuntimeError: in a backward pass with create_graph.
    """
    if chunk < 1:
        raise ValueError(f"chunk: expected at least 1 row, got {chunk}")
    return _ChunkedCrossEntropy.apply(features, weight, target, chunk, ignore_index, torch.is_grad_enabled())


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, target: Tensor, chunk: int, ignore_index: int, has_backward: bool
    ) -> Tensor:
        needs_features, needs_weight = (has_backward and needs for needs in ctx.needs_input_grad[:2])
        device = features.device.type
        x, w = features, weight
        if torch.is_autocast_enabled(device) and features.dtype != torch.float64:
            low = torch.get_autocast_dtype(device)
            x, w = features.to(low), weight.to(low)  # here, as autocast would cast the weight again for every chunk
        high = torch.promote_types(x.dtype, torch.float32)
        total = torch.zeros((), dtype=high, device=features.device)
        features_grad = torch.empty_like(features) if needs_features else None
        weight_grad = torch.zeros(weight.shape, dtype=high, device=weight.device) if needs_weight else None
        with torch.autocast(device, enabled=False):
            for start in range(0, len(x), chunk):
                rows = slice(start, start + chunk)
                losses, logits_grad = _losses_and_gradient(x[rows] @ w.T, target[rows], ignore_index)
                total += losses.sum()
                if features_grad is not None:
                    features_grad[rows] = logits_grad @ w  # (chunk, D)
                if weight_grad is not None and x.dtype == high:
                    weight_grad.addmm_(logits_grad.T, x[rows])  # (V, D), in place
                elif weight_grad is not None:
                    weight_grad += logits_grad.T @ x[rows]
        ctx.save_for_backward(features_grad, None if weight_grad is None else weight_grad.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # with create_graph, whose result would be taken for a constant
            raise RuntimeError(
                "chunked_cross_entropy: has no second derivatives; expected backward without create_graph"
            )
        features_grad, weight_grad = (None if saved is None else saved * grad for saved in ctx.saved_tensors)
        return features_grad, weight_grad, None, None, None, None


def _losses_and_gradient(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Losses (chunk,) and their gradients with respect to the logits (chunk, V), which may be overwritten."""
    if _uses_kernel(logits):
        from src.ops.cross_entropy_kernel import fused_cross_entropy  # loads Triton

        return fused_cross_entropy(logits, target, ignore_index), logits
    counts = target != ignore_index  # (chunk,)
    index = torch.where(counts, target, 0)[:, None]  # (chunk, 1)
    high = logits.to(torch.promote_types(logits.dtype, torch.float32))
    high -= high.amax(1, keepdim=True)
    of_target = high.gather(1, index)
    sums = high.exp_().sum(1, keepdim=True)  # (chunk, 1)
    losses = (sums.log() - of_target)[:, 0]
    high /= sums
    high.scatter_add_(1, index, torch.full_like(sums, -1))
    high.masked_fill_(~counts[:, None], 0)
    return losses.masked_fill(~counts, 0), high.to(logits.dtype)


def _uses_kernel(logits: Tensor) -> bool:
    on_gpu = logits.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"  # which runs kernels on the CPU
    return on_gpu and HAS_TRITON and logits.dtype != torch.float64


HAS_TRITON = find_spec("triton") is not None
