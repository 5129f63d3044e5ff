"""The gradients of optimizer steps: of steps that were split, and of one large batch."""

import random
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.utils.data import DataLoader

from playbook.batches import num_samples
from playbook.testing.command import UNSAVED
from playbook.training.microbatches import MicroBatches

Samples = tuple[Any, ...]  # a tensor or list for each field of a batch, with a row a sample


class _Steps(Callback):
    """Keeps the gradients that the optimizer gets, step by step; memory suffices for batches in so many parts."""

    def __init__(self, num_parts: int) -> None:
        self.gradients: list[list[Tensor]] = []
        self.num_parts = num_parts
        self.size = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.size = num_samples(batch) or 1

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
        parts = next((callback.num_parts for callback in callbacks if isinstance(callback, MicroBatches)), self.size)
        if parts < min(self.num_parts, self.size):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        gradients = [p.grad for p in pl_module.parameters() if p.requires_grad]
        self.gradients.append([torch.zeros(()) if gradient is None else gradient.clone() for gradient in gradients])


def step_gradients(
    module: LightningModule,
    batches: list[Any],
    accumulate: int = 1,
    num_parts: int = 1,
    weighed: bool | MicroBatches = True,
    **settings: Any,
) -> list[list[Tensor]]:
    """Trains for an epoch; the module's learning rate must be 0 for steps to be comparable.

    Args:
        module: what is trained.
        batches: ready ones, of any size.
        accumulate: batches of a step.
        num_parts: parts of a batch that fit into memory.
        weighed: by MicroBatches, or by such a callback; else it is Lightning alone.
        settings: of the Trainer.
    """
    steps = _Steps(num_parts)
    micro_batches = [weighed] if isinstance(weighed, MicroBatches) else [MicroBatches()] * weighed
    callbacks: list[Callback] = [*micro_batches, *settings.pop("callbacks", []), steps]
    settings = {**UNSAVED, "max_epochs": 1, "accumulate_grad_batches": accumulate, **settings}
    loader: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]  # a list is a data set
    validates = is_overridden("validation_step", module)  # a task is warned of where there is no loader
    Trainer(**settings, limit_val_batches=0, callbacks=callbacks).fit(module, loader, loader if validates else None)
    return steps.gradients


def random_split(samples: Samples, seed: int, accumulate: int) -> tuple[list[list[Any]], list[list[Any]]]:
    """Batches of 1 to 7 samples, as different as a bucket sampler makes them, and the large batches of their steps."""
    rng, ends = random.Random(seed), [0]
    while ends[-1] < len(samples[0]):
        ends.append(min(ends[-1] + rng.randint(1, 7), len(samples[0])))
    steps = [*ends[:-1:accumulate], ends[-1]]
    batches, large = ([[field[a:b] for field in samples] for a, b in pairwise(cuts)] for cuts in (ends, steps))
    return batches, large


def assert_same_steps(found: list[list[Tensor]], expected: list[list[Tensor]]) -> None:
    """Within 1e-6 of the largest element of each gradient."""
    assert len(found) == len(expected)
    for number, (gradients, wanted) in enumerate(zip(found, expected, strict=True)):
        for gradient, reference in zip(gradients, wanted, strict=True):
            error = (gradient - reference).abs().max() / reference.abs().max().clamp(min=1e-30)
            assert error <= 1e-6, f"step {number}: relative error {error:.2g}"
