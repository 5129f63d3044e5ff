"""Fused steps of Adam and AdamW on the CPU, where nothing else was asked for."""

from functools import partial
from typing import Any

from lightning.pytorch.plugins.precision import MixedPrecision
from torch.optim import Adam, AdamW

OTHER_KERNELS = ("capturable", "differentiable")


def fused_option(optimizer_class: Any, factory: Any, trainer: Any) -> dict[str, bool]:
    """`{"fused": True}` where a fused step is as good and faster, else nothing.

    On the CPU, torch steps one parameter after another in Python: 0.57 ms for the eight of the MLP on digits, 0.30 ms
    fused (benchmarks/LOG.md). On GPUs it takes its multi-tensor kernels by itself.

    Args:
        optimizer_class: that the factory builds.
        factory: class or partial, whose own choices count.
        trainer: that will run it; None for none.
    """
    choices = factory.keywords if isinstance(factory, partial) else {}
    is_chosen = choices.get("fused") is not None or choices.get("foreach") is not None
    if optimizer_class not in (Adam, AdamW) or is_chosen or any(choices.get(name) for name in OTHER_KERNELS):
        return {}
    on_cpu = trainer is not None and trainer.world_size == 1 and trainer.strategy.root_device.type == "cpu"
    # where losses are scaled, a fused step unscales by itself; Lightning clips no gradients then, in bf16 neither
    is_mixed = isinstance(getattr(trainer, "precision_plugin", None), MixedPrecision)
    return {"fused": True} if on_cpu and not is_mixed else {}
