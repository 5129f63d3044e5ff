"""Causal attention of one sequence, forward and backward: time and peak memory at two lengths.

12 heads of 64 features in bf16, by the functions that the GPT of src calls: SDPA, and FlexAttention (compiled) with all
previous tokens and with a window of 1,024. Peak memory is what is allocated above the queries, keys and values. It must
grow by the factor of the length; that of building a block mask is measured on its own, as it is done once a batch.
On a CPU, FlexAttention has no backward: only the forward runs there, and torch does not count memory.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_parts.measuring import Setting, summary
from src.ops.attention import attend, visible_blocks


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    lengths = setting.pick((8192, 32_768), (64, 256))
    window = setting.pick(1024, 16)
    masks: dict[str, Callable[[int], Any]] = {
        "SDPA": lambda length: None,
        "FlexAttention": lambda length: visible_blocks(length, None, None, setting.device),
        f"FlexAttention, window of {window}": lambda length: visible_blocks(length, window, None, setting.device),
    }
    peaks: dict[int, dict[str, float | None]] = {}
    for length in lengths:
        works, peaks[length] = {}, {}
        for name, make_mask in masks.items():
            if name != "SDPA":
                peaks[length][f"mask of {name}"] = setting.peak_mib(partial(make_mask, length))
            works[name] = partial(_attend, _inputs(setting, length), make_mask(length))
        variants = {name: partial(setting.seconds, work) for name, work in works.items()}
        for name, seconds in setting.alternate(variants, rounds=setting.pick(10, 2)).items():
            yield f"{name}, {length} tokens, ms", summary(seconds, 1e3)
        for name, work in works.items():
            peaks[length][name] = setting.peak_mib(work)
        yield f"{length} tokens, peak MiB", peaks[length]
    short, long = (peaks[length] for length in lengths)
    for name, before in short.items():
        growth = after / before if before and (after := long[name]) else None
        yield f"{name}, growth of memory for {lengths[1] / lengths[0]:g} × the tokens", growth


def _inputs(setting: Setting, length: int) -> list[Tensor]:
    """Queries, keys and values, (1, H, T, D / H)."""
    heads, dim = setting.pick((12, 64), (2, 16))
    options = {"device": setting.device, "dtype": torch.bfloat16 if setting.is_gpu else torch.float32}
    return [torch.randn(1, heads, length, dim, requires_grad=setting.is_gpu, **options) for _ in range(3)]


def _attend(inputs: list[Tensor], mask: Any) -> None:
    query, key, value = inputs
    output = attend(query, key, value, mask)
    if output.requires_grad:
        torch.autograd.grad(output, inputs, torch.ones_like(output))
