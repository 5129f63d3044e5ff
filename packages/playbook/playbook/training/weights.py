"""The weight of a batch in its optimizer step: the number of samples, tokens or pixels of its mean loss."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, distributed
from torch.utils.data import DataLoader

from playbook.processes import shard_of
from playbook.training.lightning.loaders import training_loaders

Weight = float | Tensor  # a tensor where the value is on an accelerator, so that nothing waits for it


def weight_method(module: LightningModule) -> Callable[[Any], Any] | None:
    """The method `weight(batch)` of a module; None if the module has none, or if it returns the number of samples.

    A parameter, a property or a method with other arguments of the same name is ignored.
    """
    method = getattr(type(module), "weight", None)
    # Task's own counts samples, which are known ahead for all processes
    counts_samples = getattr(module, "weighs_samples", False) is True
    if counts_samples or not inspect.isfunction(method) or method.__module__ == "playbook.task":
        return None
    try:
        inspect.signature(method).bind(module, None)
    except TypeError:
        return None
    return partial(method, module)


def sample_weight(trainer: Any, batch_idx: int) -> float | None:
    """The factor of a batch's mean loss that gives every sample of the optimizer step the same weight.

    1 unless the step has fewer batches, or a smaller one, than `accumulate_grad_batches` full ones in every process.
    None if the loader does not provide the number of samples in its batches.
    """
    accumulate, num_batches = trainer.accumulate_grad_batches, trainer.num_training_batches
    if num_batches == float("inf") or trainer.overfit_batches:
        return None
    if getattr(getattr(trainer, "datamodule", None), "on_error", "stop") == "skip":
        return None  # batches may hold fewer samples
    loader, *others = training_loaders(trainer)
    batch_size = loader.batch_size if isinstance(loader, DataLoader) and not others else None
    sampler: Any = getattr(loader, "sampler", None)
    try:
        own = len(sampler)
    except TypeError:
        return None
    if batch_size is None:
        return None
    first = batch_idx // accumulate * accumulate
    end = min(first + accumulate, num_batches)
    world = shard_of(trainer)[1]
    total = sampler.num_used() if hasattr(sampler, "num_used") else own * world
    in_step = min(end * batch_size * world, total) - first * batch_size * world
    in_batch = min(batch_size, own - batch_idx * batch_size)
    return in_batch * world * accumulate / in_step


def scaled(loss: Tensor, factor: Weight) -> Tensor:
    """The loss times a factor. A factor of 0 gives 0, and gradients of 0, where the loss is NaN or infinite."""
    if isinstance(factor, Tensor):
        return (loss * factor.to(loss.device, loss.dtype)).masked_fill(factor == 0, 0.0)
    if factor == 1:
        return loss
    return loss * factor if factor else loss.masked_fill(loss.new_ones((), dtype=torch.bool), 0.0)


def checked_weight(weight: Any) -> Weight:
    """A weight as a float, or as a tensor if it is on an accelerator.

    Raises:
        TypeError: it is not a number.
        ValueError: it is below 0 or not finite.
    """
    if isinstance(weight, Tensor) and weight.numel() == 1:
        weight = weight.detach().reshape(())
        if weight.device.type != "cpu":
            return weight.to(torch.float32 if weight.device.type == "mps" else torch.float64)
        weight = weight.item()
    if not isinstance(weight, int | float):
        shape = f" of shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else ""
        got = f"{type(weight).__name__}{shape}"
        raise TypeError(f"weight: expected a number, a scalar tensor or None for a batch, got {got}")
    if not 0 <= weight < math.inf:
        raise ValueError(f"weight: expected a finite number of at least 0 for a batch, got {weight}")
    return float(weight)


def total_weight(trainer: Trainer, weight: Weight) -> Weight:
    """The sum over all processes."""
    if trainer.world_size == 1:
        return weight
    device = trainer.strategy.root_device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    # full, as copying from the host may wait for the device
    total = weight.clone() if isinstance(weight, Tensor) else torch.full((), weight, device=device, dtype=dtype)
    distributed.all_reduce(total)
    return checked_weight(total)


def ratio(weight: Weight, total: Weight) -> Weight:
    """Weight / total, 0 where both are 0."""
    if isinstance(total, Tensor):
        return torch.where(total == 0, 0.0, weight / total)
    return weight / total if total else 0.0
