"""Counts samples where Lightning counts batches, and splits a batch that does not fit into memory (always on)."""

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from lightning.pytorch.loops.utilities import _block_parallel_sync_behavior
from lightning.pytorch.utilities.data import extract_batch_size
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torchmetrics import Metric

from src.errors import UserError
from src.ranks import shard_of

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")  # torch has several ways to say so


class MicroBatches(Callback):
    """A step's gradient is the mean over its samples, however they were cut into batches and processes (always on).

    Lightning divides by the number of batches and of processes: at the end of an epoch, where fewer or smaller batches
    are left, samples would count less than before. And a batch that does not fit into memory is done in halves,
    quarters, …, whose gradients add up to the same step; batch norms and dropout see the parts. Without either event
    nothing changes, bitwise. Losses must be means over samples.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and pl_module.automatic_optimization:
            trainer.fit_loop.epoch_loop.automatic_optimization = _Optimization(trainer)


class _Optimization(_AutomaticOptimization):
    """Lightning's optimization loop with another closure."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.num_parts = 1  # that every batch is done in
        self.window: list[_Closure] = []  # batches since the last optimizer step

    def _make_closure(self, kwargs: Any, optimizer: torch.optim.Optimizer, batch_idx: int) -> Closure:
        plain = super()._make_closure(kwargs, optimizer, batch_idx)
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self.window = []
        return _Closure(self, kwargs, sample_weight(self.trainer, batch_idx), plain)

    def halve(self, batch: Any, error: str) -> None:
        """Doubles the number of parts, or says that it cannot."""
        size = _size(batch)
        if self.trainer.world_size > 1:  # the processes' collective operations would no longer match
            accumulate = 2 * self.trainer.accumulate_grad_batches
            raise UserError(
                f"--data.batch_size: out of memory; {max(size // 2, 1)} with --trainer.accumulate_grad_batches "
                f"{accumulate} is the same step in half of it ({error})"
            )
        if size <= self.num_parts:
            raise UserError(f"--data.batch_size: out of memory even with one sample at a time ({error})")
        self.num_parts *= 2
        kinds = {"batch norm": _NormBase, "dropout": nn.Dropout}
        modules = list(self.trainer.lightning_module.modules())
        sees = [name for name, kind in kinds.items() if any(isinstance(module, kind) for module in modules)]
        print(
            f"\nout of memory with {size} samples: going on with {self.num_parts} parts of at most "
            f"{-(-size // self.num_parts)}, whose gradients add up to the same step"
            + (f"; {' and '.join(sees)} see the parts" if sees else ""),
            flush=True,
        )
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


class _Closure(Closure):
    """One batch: forward, zero_grad, backward; in parts where memory asks for it."""

    def __init__(self, loop: _Optimization, kwargs: Any, weight: float, plain: Closure) -> None:
        super().__init__(plain._step_fn, plain._backward_fn, plain._zero_grad_fn)
        self.loop, self.kwargs, self.weight = loop, kwargs, weight
        self._forward_done = False

    @torch.enable_grad()
    def closure(self, *args: Any, **kwargs: Any) -> ClosureResult:
        counted: _MetricStates | None = None  # what the metrics must hold in the end, if this batch is in them already
        while True:
            before = _MetricStates(self.loop.trainer) if self.loop.num_parts > 1 else None
            try:
                result = self.run()
                break
            except RuntimeError as raised:  # torch.OutOfMemoryError is one
                if not any(words in str(raised) for words in OUT_OF_MEMORY):
                    raise
                error = str(raised).partition(". ")[0]
            # out of the except block: the traceback would keep the tensors alive
            if before is not None:
                before.restore()
            elif self._forward_done:
                counted = _MetricStates(self.loop.trainer)
            self.loop.halve(self.kwargs.get("batch"), error)
            self._repeat_the_window()
        if counted is not None:
            counted.restore()
        self.loop.window.append(self)
        return result

    def run(self) -> ClosureResult:
        self._forward_done = False
        losses: list[Tensor] = []
        output = ClosureResult(None)
        parts = _parts(self.kwargs.get("batch"), self.loop.num_parts)
        for number, (share, part) in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else _block_parallel_sync_behavior(self.loop.trainer.strategy, block=True):
                output = (
                    self._step_fn() if len(parts) == 1 else self.loop._training_step({**self.kwargs, "batch": part})
                )
                self._forward_done = True
                if output.closure_loss is None:
                    self.warning_cache.warn("`training_step` returned `None`: the step goes on without this batch")
                if self._zero_grad_fn is not None and number == 0:
                    self._zero_grad_fn()
                if self._backward_fn is not None and output.closure_loss is not None:
                    weight = share * self.weight
                    self._backward_fn(output.closure_loss if weight == 1 else output.closure_loss * weight)
            if output.loss is not None:
                losses.append(output.loss if share == 1 else output.loss * share)
        output.closure_loss = None  # lets the graph go
        output.loss = sum(losses[1:], losses[0]) if losses else None
        return output

    def _repeat_the_window(self) -> None:
        """Adds up again what this optimizer step had; a backward pass that failed has left a part of its gradients."""
        metrics = _MetricStates(self.loop.trainer)
        for parameter in self.loop.trainer.lightning_module.parameters():
            parameter.grad = None
        for former in self.loop.window:
            former.run()
        metrics.restore()


class _MetricStates:
    """What all metrics hold at this moment."""

    def __init__(self, trainer: Any) -> None:
        modules = [*trainer.lightning_module.modules(), *trainer.fit_loop.epoch_loop._results.values()]
        metrics = [module for module in modules if isinstance(module, Metric)]
        self.states = [(metric, _copied(metric.metric_state), metric._update_count) for metric in metrics]

    def restore(self) -> None:
        for metric, state, updates in self.states:
            for name, value in state.items():
                setattr(metric, name, value)
            metric._update_count = updates


def sample_weight(trainer: Any, batch_idx: int) -> float:
    """What a batch's mean loss is multiplied by for every sample of the optimizer step to count the same.

    1 unless the step has fewer batches, or a smaller one, than `accumulate_grad_batches` full ones in every process.
    """
    accumulate, num_batches = trainer.accumulate_grad_batches, trainer.num_training_batches
    if num_batches == float("inf"):
        return 1.0
    first = batch_idx // accumulate * accumulate
    end = min(first + accumulate, num_batches)
    loaders = trainer.fit_loop._combined_loader.flattened
    sampler: Any
    sampler, batch_size = getattr(loaders[0], "sampler", None), getattr(loaders[0], "batch_size", None)
    try:
        own = len(sampler)
    except TypeError:
        batch_size = None
    if len(loaders) > 1 or not batch_size or getattr(trainer, "overfit_batches", 0):
        return accumulate / (end - first)  # of unknown size: every batch counts the same
    world = shard_of(trainer)[1]
    total = sampler.num_used() if hasattr(sampler, "num_used") else own * world
    in_step = min(end * batch_size * world, total) - first * batch_size * world
    in_batch = min(batch_size, own - batch_idx * batch_size)
    return in_batch * world * accumulate / in_step


def _size(batch: Any) -> int:
    """Samples of a batch; 1, which cannot be split, where nothing says."""
    try:
        return extract_batch_size(batch)
    except MisconfigurationException:
        return 1


def _parts(batch: Any, num_parts: int) -> list[tuple[float, Any]]:
    """The batch in parts of nearly equal size, each with its share of the samples."""
    if num_parts == 1:
        return [(1.0, batch)]
    size = _size(batch)
    num_parts = min(num_parts, size)
    ends = [size * number // num_parts for number in range(num_parts + 1)]
    return [((end - start) / size, _cut(batch, slice(start, end), size)) for start, end in pairwise(ends)]


def _cut(batch: Any, part: slice, size: int) -> Any:
    """The same samples of every tensor, and of every list with an entry a sample."""
    if isinstance(batch, Tensor):
        return batch[part] if batch.ndim and len(batch) == size else batch
    if isinstance(batch, dict):
        return {name: _cut(value, part, size) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        of_samples = len(batch) == size and not any(
            isinstance(value, Tensor) and _size(value) == size for value in batch
        )
        cut = list(batch[part]) if of_samples else [_cut(value, part, size) for value in batch]
        return type(batch)(*cut) if hasattr(batch, "_fields") else type(batch)(cut)
    return batch


def _copied(state: Any) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else list(value) for name, value in state.items()}
