"""Weights the batches of an optimizer step, and splits batches that do not fit into memory (always on)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from playbook.batches import num_samples
from playbook.errors import UserError
from playbook.processes import shard_of
from playbook.training.lightning.optimization import replace_closures
from playbook.training.step_batch import StepBatch
from playbook.training.weights import (
    Weight,
    checked_weight,
    ratio,
    total_weight,
    weight_method,
)

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class MicroBatches(Callback):
    """Gives an optimizer step the gradient of one large batch, no matter how the batch was split (always on).

    A step is split by `accumulate_grad_batches`, over processes, and if a batch does not fit into memory: then into
    halves, quarters and so on. Lightning takes the mean over the batches of a step. This is the mean over its samples
    only if all batches have the same size, and never the mean over tokens or labelled pixels. Here, the gradient is
    Σ wᵢ ∇ℓᵢ / Σ wᵢ over the batches i of all processes, with the mean loss ℓᵢ of a batch and its weight wᵢ:

    - The module's method `weight(batch)` returns the weight, over which the batch's loss is a mean, as a number or a
      scalar tensor.
    - Without such a method, the weight is the number of samples.
    - `None` means that the loss is not a mean over parts of the batch (Dice, contrastive losses). Then all batches of a
      step count the same, as in Lightning, and a message says once that the step differs from one large batch.

    If all weights of a step are equal, its gradient is bitwise that of Lightning. A batch of weight 0 adds nothing,
    whatever its loss is; a step with only such batches has gradients of 0. Numbers of samples that a DataLoader knows
    in advance need no communication. Other weights need an all_reduce of one scalar per step with several processes,
    and one multiplication of the gradients per step with accumulation; hooks before `on_before_optimizer_step` see the
    gradients before it. Weights on an accelerator stay there, without synchronisation.

    Random numbers and batch norms differ between one large batch and its parts. A batch can be split if it is a tensor,
    or a list, tuple or dict whose tensors (B, …) and lists of B entries have one sample per row. `train/loss_step` is
    that of the last part. Values that training_step logs before it runs out of memory are counted twice, the first time
    this happens. With accumulation, the batches of a step stay in memory until it is done.
    """

    def __init__(self) -> None:
        self.num_parts = 1  # that every batch is done in
        self.step_batches: list[StepBatch] = []  # batches before the present one that the optimizer step is made of
        self.weight_of: Callable[[Any], Any] | None = None  # method of the module; without one, samples are weighed
        self.unit_weight: float | None = None  # mean weight of the processes' first batches
        self._difference_told = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self.weight_of = weight_method(pl_module)
            replace_closures(trainer, partial(StepBatch, self))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            self.num_parts = 1
        if self.num_parts > 1:
            print(f"out of memory before: continuing with {self.num_parts} parts per batch", flush=True)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Refuses accumulation where the loss is that of whole batches; a scheduler may begin it in any epoch."""
        steps = trainer.accumulate_grad_batches
        if steps > 1 and not getattr(pl_module, "can_split_batches", True):
            raise UserError(
                f"--trainer.accumulate_grad_batches {steps}: {type(pl_module).__name__} compares all samples of a "
                f"batch, so {steps} batches have another loss than a large one; expected 1, with a larger "
                "--data.batch_size or more processes"
            )

    def state_dict(self) -> dict[str, Any]:
        state = {"num_parts": self.num_parts} if self.num_parts > 1 else {}
        return state if self.unit_weight is None else {**state, "unit": self.unit_weight}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_parts = state_dict.get("num_parts", 1)
        self.unit_weight = state_dict.get("unit")

    def halve(self, trainer: Trainer, batch: Any, error: str) -> None:
        """Doubles the number of parts.

        Raises:
            UserError: the batch cannot be split further.
        """
        size = num_samples(batch)
        if not getattr(trainer.lightning_module, "can_split_batches", True):
            raise UserError(
                f"--data.batch_size: out of memory with {size} samples, and {type(trainer.lightning_module).__name__} "
                "compares all samples of a batch, so its parts have another loss; expected a smaller batch, more "
                f"processes or --trainer.precision bf16-mixed ({error})"
            )
        is_mean = self.weight_of is None or self.weight_of(batch) is not None
        if trainer.world_size > 1:  # the processes' collective operations would no longer match
            accumulate = 2 * trainer.accumulate_grad_batches
            step = "the same step" if is_mean else "a similar step, as the loss is not a mean over parts of a batch,"
            raise UserError(
                f"--data.batch_size: out of memory; {max(size // 2, 1)} with --trainer.accumulate_grad_batches "
                f"{accumulate} gives {step} with half of the memory ({error})"
            )
        if size == 0:
            raise UserError(f"--data.batch_size: out of memory, and a {type(batch).__name__} cannot be split ({error})")
        if size <= self.num_parts:
            raise UserError(f"--data.batch_size: out of memory even with one sample at a time ({error})")
        self.num_parts *= 2
        modules = list(trainer.lightning_module.modules())
        norms = any(isinstance(module, BATCH_NORMS) for module in modules)
        dropouts = any(isinstance(module, DROPOUTS) and module.p > 0 for module in modules)
        see_parts = " and ".join([*["batch norms"] * norms, *["dropouts"] * dropouts])
        print(
            f"\nout of memory with {size} samples: continuing with {self.num_parts} parts of at most "
            f"{-(-size // self.num_parts)}, "
            + ("whose gradients add up to the same step" if is_mean else "whose mean loss differs from the batch's")
            + (f"; {see_parts} see the parts" if see_parts else ""),
            flush=True,
        )
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def weigh(self, trainer: Trainer, batch: Any) -> Weight:
        """The weight of a batch's mean loss; 1 if the loss is not a mean, or the weight is unknown."""
        if self.weight_of is None or batch is None:  # training_step may take an iterator in place of a batch
            return float(num_samples(batch) or 1)
        weight = self.weight_of(batch)
        if weight is not None:
            return checked_weight(weight)
        num_batches = trainer.accumulate_grad_batches * shard_of(trainer)[1]
        if num_batches > 1 and not self._difference_told and trainer.is_global_zero:
            print(
                "warning: the loss is not a mean over parts of a batch (its weight is None), so a step uses the mean "
                f"loss of {num_batches} batches, which differs from the loss of one large batch",
                flush=True,
            )
        self._difference_told = True
        return 1.0

    def weigh_parts(self, batch: Any, parts: list[tuple[float, Any]]) -> list[Weight]:
        """Weight of each part's loss in that of the batch; they add up to 1."""
        shares: list[Weight] = [share for share, _ in parts]
        if len(parts) == 1 or self.weight_of is None or self.weight_of(batch) is None:
            return shares
        weights = [checked_weight(self.weight_of(part)) for _, part in parts]
        total = sum(weights)
        return [ratio(weight, total) for weight in weights]

    def unit(self, trainer: Trainer, weight: Weight) -> float:
        """What weights are measured in until those of the whole step are known: the same number for all processes.

        Gradients then have their usual magnitude, which fp16 needs, and keep every bit where all weights are equal.
        """
        if self.unit_weight is None:
            mean = float(total_weight(trainer, weight)) / trainer.world_size
            if mean == 0:
                return 1.0  # this batch adds nothing
            self.unit_weight = mean
        return self.unit_weight
