"""Softmax, cross-entropy and its gradient in one Triton kernel, which reads the logits twice and writes them once.

Importing this file needs Triton. With TRITON_INTERPRET=1 in the environment before, kernels run on the CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_BLOCK = 8192  # classes at a time: 32 values a thread with 8 warps


@torch.library.custom_op("playbook_src::fused_cross_entropy", mutates_args=("logits",))
def fused_cross_entropy(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Cross-entropy of each row in float32; the logits become its gradient, softmax minus one-hot.

    Args:
        logits: (N, V), each row contiguous; float32, bfloat16 or float16. Overwritten.
        target: (N,) int64; out of range gives nan, and the gradient of softmax alone.
        ignore_index: target of rows with loss and gradient 0.

    Returns:
        (N,) in float32.
    """
    num_rows, num_classes = logits.shape
    assert logits.stride(1) == 1, f"expected contiguous rows, got strides {logits.stride()}"
    losses = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    if num_rows:
        block = min(triton.next_power_of_2(num_classes), LARGEST_BLOCK)
        _kernel[(num_rows,)](
            logits,
            target.contiguous(),
            losses,
            logits.stride(0),
            num_classes,
            ignore_index,
            BLOCK=block,
            num_warps=8,  # pyright: ignore[reportCallIssue]
        )
    return losses


@fused_cross_entropy.register_fake
def _(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    return logits.new_empty(len(logits), dtype=torch.float32)


@triton.jit
def _kernel(logits, target, losses, stride, num_classes, ignore_index, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    """One row a program."""
    row = tl.program_id(0).to(tl.int64)  # row × V passes 2³¹
    logits += row * stride
    columns = tl.arange(0, BLOCK)
    label = tl.load(target + row)
    if label == ignore_index:
        for start in range(0, num_classes, BLOCK):
            tl.store(logits + start + columns, tl.zeros([BLOCK], tl.float32), mask=start + columns < num_classes)
        tl.store(losses + row, 0.0)
    else:
        of_label = tl.load(logits + label, mask=(label >= 0) & (label < num_classes), other=float("nan")).to(tl.float32)
        largest = -3.4e38  # not -inf, of which a block of -inf would make nan
        total = 0.0
        for start in range(0, num_classes, BLOCK):  # Milakov & Gimelshein 2018: maximum and sum in one reading
            x = tl.load(logits + start + columns, mask=start + columns < num_classes, other=-float("inf"))
            x = x.to(tl.float32)
            larger = tl.maximum(largest, tl.max(x))
            total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger))
            largest = larger
        tl.store(losses + row, tl.log(total) + (largest - of_label))
        for start in range(0, num_classes, BLOCK):
            inside = start + columns < num_classes
            x = tl.load(logits + start + columns, mask=inside, other=-float("inf")).to(tl.float32)
            gradient = tl.exp(x - largest) / total - tl.where(start + columns == label, 1.0, 0.0)
            tl.store(logits + start + columns, gradient, mask=inside)
