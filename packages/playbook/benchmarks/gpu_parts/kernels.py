"""The Triton kernel of src, cross-entropy with its gradient, against F.cross_entropy and autograd.

It is the only one (`grep -r triton.jit src packages`). 8,192 rows of 50,304 logits. The difference is measured from the
same logits in float32 throughout. The kernel overwrites the logits; copying them is not timed. On a CPU, Triton's
interpreter runs it, whose time says nothing.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpu_parts.measuring import Setting, compared

IGNORED = -100


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    if find_spec("triton") is None:
        yield "skipped", "Triton is not installed"
        return
    from src.ops.cross_entropy_kernel import fused_cross_entropy

    num_rows, num_classes = setting.pick((8192, 50_304), (8, 100))
    generator = torch.Generator(setting.device).manual_seed(0)
    logits = torch.randn(num_rows, num_classes, device=setting.device, generator=generator)
    target = torch.randint(num_classes, (num_rows,), device=setting.device, generator=generator)
    target[::7] = IGNORED
    for dtype in setting.pick((torch.float32, torch.bfloat16), (torch.float32,)):
        values = logits.to(dtype)
        name = str(dtype).removeprefix("torch.")
        losses, gradient = _eager(values.float(), target)
        work = values.clone()
        difference = (fused_cross_entropy(work, target, IGNORED) - losses).abs().max().item()
        yield f"{name}, largest difference of losses", difference
        yield f"{name}, largest difference of gradients", (work.float() - gradient).abs().max().item()
        del losses, gradient

        def kernel(values: Tensor = values, work: Tensor = work) -> float:
            work.copy_(values)
            return setting.seconds(lambda: fused_cross_entropy(work, target, IGNORED))

        def eager(values: Tensor = values) -> float:
            return setting.seconds(lambda: _eager(values, target))

        seconds = setting.alternate({"eager": eager, "kernel": kernel}, rounds=setting.pick(20, 2))
        yield from compared(seconds, "ms", 1e3, "eager", prefix=f"{name}: ")


def _eager(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (N,) and the gradient of their sum with respect to the logits."""
    leaf = logits.detach().requires_grad_()
    losses = cross_entropy(leaf.float(), target, reduction="none", ignore_index=IGNORED)
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradient
