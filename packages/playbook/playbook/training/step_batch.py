"""One batch of an optimizer step: its loss with the right weight, and in parts where memory asks for it."""

from typing import Any

import torch
from torch import Tensor

from playbook.batches import split
from playbook.processes import shard_of
from playbook.training.lightning.optimization import BatchClosure, ClosureResult, gradients_accumulate
from playbook.training.memory import is_out_of_memory
from playbook.training.metric_states import MetricStates
from playbook.training.weights import Weight, ratio, sample_weight, scaled, total_weight


class StepBatch(BatchClosure):
    """One batch of an optimizer step; in parts where memory asks for it.

    Where the weight of the whole step is known ahead, losses are multiplied by their share in it. Else they are
    multiplied by their weight in some unit, and the gradients of the step by the rest before the optimizer steps.
    """

    def __init__(self, callback: Any, *args: Any) -> None:
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
        former: list[StepBatch] = []  # to do again, as a backward pass that failed has left a part of its gradients
        counted: MetricStates | None = None  # what the metrics must hold in the end, if this batch is in them already
        while True:
            before = MetricStates(trainer) if callback.num_parts > 1 else None
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
                counted = MetricStates(trainer)
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

    def _finish_gradients(self, step_batches: "list[StepBatch]") -> None:
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
