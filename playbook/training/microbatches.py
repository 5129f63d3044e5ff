"""Weights the batches of an optimizer step, and splits batches that do not fit into memory (always on)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torchmetrics import Metric

from playbook.batches import num_samples, split
from playbook.errors import UserError
from playbook.processes import shard_of
from playbook.training.lightning import (
    BatchClosure,
    ClosureResult,
    gradients_accumulate,
    logged_values,
    replace_closures,
)
from playbook.training.weights import (
    Weight,
    checked_weight,
    ratio,
    sample_weight,
    scaled,
    total_weight,
    weight_method,
)

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")  # torch has several ways to say so
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
        self.step_batches: list[_Batch] = []  # batches before the present one that the optimizer step is made of
        self.weight_of: Callable[[Any], Any] | None = None  # method of the module; without one, samples are weighed
        self.unit_weight: float | None = None  # mean weight of the processes' first batches
        self._difference_told = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self.weight_of = weight_method(pl_module)
            replace_closures(trainer, partial(_Batch, self))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            self.num_parts = 1
        if self.num_parts > 1:
            print(f"out of memory before: continuing with {self.num_parts} parts per batch", flush=True)

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


class _Batch(BatchClosure):
    """One batch of an optimizer step; in parts where memory asks for it.

    Where the weight of the whole step is known ahead, losses are multiplied by their share in it. Else they are
    multiplied by their weight in some unit, and the gradients of the step by the rest before the optimizer steps.
    """

    def __init__(self, callback: MicroBatches, *args: Any) -> None:
        super().__init__(*args)
        self.callback = callback
        self.weight: Weight | None = None  # None where no gradient is multiplied at the end of the step
        self.is_left_out = False  # as its weight is 0
        self._forward_done = False
        if self.begins_step:
            callback.step_batches = []

    @torch.enable_grad()
    def closure(self, *args: Any, **kwargs: Any) -> ClosureResult:
        trainer, callback = self.trainer, self.callback
        former: list[_Batch] = []  # to do again, as a backward pass that failed has left a part of its gradients
        counted: _MetricStates | None = None  # what the metrics must hold in the end, if this batch is in them already
        while True:
            before = _MetricStates(trainer) if callback.num_parts > 1 else None
            try:
                for batch in former:
                    batch.run()
                if former and before is not None:
                    before.restore()
                result = self.run()
                break
            except RuntimeError as raised:  # torch.OutOfMemoryError is one
                if not is_out_of_memory(raised):
                    raise
                error = str(raised).partition(". ")[0]
            # out of the except block: the traceback would keep the tensors alive
            if before is not None:
                before.restore()
            elif self._forward_done:
                counted = _MetricStates(trainer)
            callback.halve(trainer, self.batch, error)
            former = callback.step_batches
        if counted is not None:
            counted.restore()
        step_batches = [*callback.step_batches, self]
        ends_step = self.has_backward and not gradients_accumulate(trainer)
        callback.step_batches = [] if ends_step or not self.has_backward else step_batches
        if ends_step:
            self._finish_gradients(step_batches)
        return result

    def run(self) -> ClosureResult:
        self._forward_done = False
        losses: list[Tensor] = []
        missing: Weight = 0.0  # share of the batch that has no loss
        output = ClosureResult(None)
        parts = split(self.batch, self.callback.num_parts)
        shares = self.callback.weigh_parts(self.batch, parts)
        factor = self._factor()
        self.is_left_out = isinstance(factor, float) and factor == 0
        for number, ((_, part), share) in enumerate(zip(parts, shares, strict=True)):
            output = self.forward(part)
            self._forward_done = True
            if output.closure_loss is None:
                self.warning_cache.warn("`training_step` returned `None`: the step continues without this batch")
                missing = missing + share
            if number == 0:
                self.zero_grad()
            if self.has_backward and output.closure_loss is not None:
                self._add_gradients(output.closure_loss, factor * share)
            if output.loss is not None:
                losses.append(scaled(output.loss, share))
        if self.weight is not None:
            self.weight = self.weight * (1.0 - missing)
        output.closure_loss = None  # lets the graph go
        output.loss = sum(losses[1:], losses[0]) if losses else None
        return output

    def _factor(self) -> Weight:
        """What the loss of the whole batch is multiplied by."""
        trainer, callback = self.trainer, self.callback
        accumulate, num_shards = trainer.accumulate_grad_batches, shard_of(trainer)[1]
        if callback.weight_of is None and accumulate == num_shards == 1:
            return 1.0
        known = sample_weight(trainer, self.batch_idx) if callback.weight_of is None else None
        if known is not None:
            return known
        weight = callback.weigh(trainer, self.batch)
        if accumulate == 1:
            return ratio(weight * trainer.world_size, total_weight(trainer, weight))
        self.weight = weight
        return ratio(weight, callback.unit(trainer, weight))

    def _add_gradients(self, loss: Tensor, factor: Weight) -> None:
        if isinstance(factor, float) and factor == 0 and self.trainer.world_size == 1:
            return  # a loss divided by a count of 0 has gradients of NaN; processes wait for each other's, though
        self.backward(scaled(loss, factor))

    def _finish_gradients(self, step_batches: "list[_Batch]") -> None:
        """Divides the gradients by the weight of the step, where they were summed up in another unit."""
        weights = [batch.weight for batch in step_batches if batch.weight is not None]
        if not weights and not self.is_left_out:
            return
        trainer = self.trainer
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]
        if all(parameter.grad is None for parameter in parameters):  # every batch has weight 0
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
        if not weights:
            return
        total = total_weight(trainer, sum(weights[1:], weights[0]))
        unit = self.callback.unit_weight or 1.0
        factor = ratio(unit * trainer.accumulate_grad_batches * trainer.world_size, total)
        if isinstance(factor, float) and factor == 1:
            return
        gradients: dict[Any, list[Tensor]] = {}
        for parameter in parameters:
            if (whole := parameter.grad) is not None:
                gradient: Tensor = whole.to_local() if hasattr(whole, "to_local") else whole  # a DTensor
                gradients.setdefault((gradient.device, gradient.dtype, gradient.is_sparse), []).append(gradient)
        for (device, dtype, is_sparse), tensors in gradients.items():
            value = factor.to(device, dtype) if isinstance(factor, Tensor) else factor
            if is_sparse:
                for tensor in tensors:
                    tensor.mul_(value)
            else:
                torch._foreach_mul_(tensors, value)


class _MetricStates:
    """What all metrics, and the sums of self.log, hold at this moment."""

    def __init__(self, trainer: Trainer) -> None:
        self.results: Any = logged_values(trainer)
        self.logged = set(self.results)
        modules = [*trainer.lightning_module.modules(), *self.results.values()]
        metrics = [module for module in modules if isinstance(module, Metric)]
        self.states = [(metric, _copied(metric.metric_state), metric._update_count) for metric in metrics]

    def restore(self) -> None:
        for key in set(self.results) - self.logged:
            del self.results[key]
        for metric, state, updates in self.states:
            for name, value in _copied(state).items():
                setattr(metric, name, value)
            metric._update_count = updates


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on any device."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def _copied(state: Any) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else list(value) for name, value in state.items()}
