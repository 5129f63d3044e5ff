"""Whether a remedy can help a training at all; each answer is the reason why not, empty if it may."""

import inspect
import os
import shutil
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from playbook.block import blocks


def channels_last(model: nn.Module) -> str:
    """Channels innermost in memory, for convolutions of images."""
    has_convolutions = any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())
    return "" if has_convolutions else "the net has no convolutions of images"


def compiles(device: str) -> str:
    """torch.compile."""
    return "" if device != "cpu" or _has_compiler() else "there is no C++ compiler"


def bf16(trainer: Any) -> str:
    """bf16 in matrix products, where the device has instructions for it."""
    if str(trainer.precision) != "32-true":
        return f"the precision is {trainer.precision}"
    if trainer.strategy.root_device.type == "cuda":
        return "" if torch.cuda.is_bf16_supported(including_emulation=False) else "the GPU has no bf16 instructions"
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    has_bf16 = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "amx_tile", "bf16"))
    return "" if has_bf16 else "the processor has no bf16 instructions"


def tf32() -> str:
    """TF32 in matrix products."""
    return "" if torch.get_float32_matmul_precision() == "highest" else "the precision of matrix products is lower"


def fused(model: Any, optimizers: Sequence[Any]) -> str:
    """The fused version of the optimizer."""
    if len(optimizers) != 1:
        return f"there are {len(optimizers)} optimizers"
    if "optimizer" not in getattr(model, "hparams", {}):
        return "the model has no option optimizer"
    kind = type(optimizers[0])
    if "fused" not in inspect.signature(kind).parameters:
        return f"{kind.__name__} has no fused version"
    return "the recipe has it" if optimizers[0].defaults.get("fused") else ""


def checkpointing(model: nn.Module) -> str:
    """Activations that are computed anew in the backward pass."""
    return "" if blocks(model) else "the net has no list of layers"


def _has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler for the CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++", "cl"))
