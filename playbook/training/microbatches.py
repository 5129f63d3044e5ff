"""Counts samples where Lightning counts batches, and splits a batch that does not fit into memory (always on)."""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader
from torchmetrics import Metric

from playbook.errors import UserError
from playbook.processes import shard_of

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")  # torch has several ways to say so


class MicroBatches(Callback):
    """A step's gradient is the mean over its samples, however they were cut into batches and processes (always on).

    Lightning divides by the number of batches and of processes: at the end of an epoch, where fewer or smaller batches
    are left, samples would count less or more than before. And a batch that does not fit into memory is done in
    halves, quarters, …, whose gradients add up to the same step. Without either event nothing changes, bitwise; a step
    takes 15 µs more (CPU time, median of 40 pairs of alternating runs, 2 busy CPU cores).

    Losses must be means over samples. A batch can be split if it is a tensor, or a list, tuple or dict whose tensors
    (B, …) and lists of B entries have a sample a row. Batch norms and dropouts see the parts, and `train/loss_step` is
    of the last one. What training_step logs before it runs out of memory is counted twice, the first time this happens.
    With accumulation, the batches of a step stay in memory until it is done.
    """

    def __init__(self) -> None:
        self.num_parts = 1  # that every batch is done in

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        loop = trainer.fit_loop.epoch_loop
        if stage == "fit" and not isinstance(loop.automatic_optimization, _Optimization):
            loop.automatic_optimization = _Optimization(trainer, self)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            self.num_parts = 1
        if self.num_parts > 1:
            print(f"out of memory before: going on with {self.num_parts} parts a batch", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"num_parts": self.num_parts} if self.num_parts > 1 else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_parts = state_dict["num_parts"]

    def halve(self, trainer: Trainer, batch: Any, error: str) -> None:
        """Doubles the number of parts.

        Raises:
            UserError: the batch cannot be split further.
        """
        size = _size(batch)
        if trainer.world_size > 1:  # the processes' collective operations would no longer match
            accumulate = 2 * trainer.accumulate_grad_batches
            raise UserError(
                f"--data.batch_size: out of memory; {max(size // 2, 1)} with --trainer.accumulate_grad_batches "
                f"{accumulate} is the same step in half of it ({error})"
            )
        if size == 0:
            raise UserError(f"--data.batch_size: out of memory, and a {type(batch).__name__} cannot be split ({error})")
        if size <= self.num_parts:
            raise UserError(f"--data.batch_size: out of memory even with one sample at a time ({error})")
        self.num_parts *= 2
        modules = list(trainer.lightning_module.modules())
        norms = any(isinstance(module, _NormBase) for module in modules)
        dropouts = any(isinstance(module, _DropoutNd) and module.p > 0 for module in modules)
        see_parts = " and ".join([*["batch norms"] * norms, *["dropouts"] * dropouts])
        print(
            f"\nout of memory with {size} samples: going on with {self.num_parts} parts of at most "
            f"{-(-size // self.num_parts)}, whose gradients add up to the same step"
            + (f"; {see_parts} see the parts" if see_parts else ""),
            flush=True,
        )
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


class _Optimization(_AutomaticOptimization):
    """Lightning's optimization loop with another closure."""

    def __init__(self, trainer: Trainer, callback: MicroBatches) -> None:
        super().__init__(trainer)
        self.callback = callback
        self.window: list[_Closure] = []  # batches before this one that the optimizer step is made of

    def _make_closure(self, kwargs: Any, optimizer: torch.optim.Optimizer, batch_idx: int) -> Closure:
        plain = super()._make_closure(kwargs, optimizer, batch_idx)
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self.window = []
        return _Closure(self, kwargs, sample_weight(self.trainer, batch_idx), plain)


class _Closure(Closure):
    """One batch: forward, zero_grad, backward; in parts where memory asks for it."""

    def __init__(self, loop: _Optimization, kwargs: Any, weight: float, plain: Closure) -> None:
        super().__init__(plain._step_fn, plain._backward_fn, plain._zero_grad_fn)
        self.loop, self.kwargs, self.weight = loop, kwargs, weight
        self._forward_done = False

    @torch.enable_grad()
    def closure(self, *args: Any, **kwargs: Any) -> ClosureResult:
        trainer, callback = self.loop.trainer, self.loop.callback
        former: list[_Closure] = []  # to do again, as a backward pass that failed has left a part of its gradients
        counted: _MetricStates | None = None  # what the metrics must hold in the end, if this batch is in them already
        while True:
            before = _MetricStates(trainer) if callback.num_parts > 1 else None
            try:
                for closure in former:
                    closure.run()
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
            callback.halve(trainer, self.kwargs.get("batch"), error)
            former = self.loop.window
        if counted is not None:
            counted.restore()
        accumulates = self._backward_fn is not None and trainer.fit_loop._should_accumulate()
        self.loop.window = [*self.loop.window, self] if accumulates else []
        return result

    def run(self) -> ClosureResult:
        self._forward_done = False
        losses: list[Tensor] = []
        output = ClosureResult(None)
        parts = _parts(self.kwargs.get("batch"), self.loop.callback.num_parts)
        for number, (share, part) in enumerate(parts):
            kwargs = self.kwargs if len(parts) == 1 else OrderedDict(self.kwargs, batch=part)
            output = self.loop._training_step(kwargs)
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


class _MetricStates:
    """What all metrics, and the sums of self.log, hold at this moment."""

    def __init__(self, trainer: Trainer) -> None:
        self.results: Any = trainer.fit_loop.epoch_loop._results
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
    """Whether memory did not suffice, on any device."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def sample_weight(trainer: Any, batch_idx: int) -> float:
    """What a batch's mean loss is multiplied by for every sample of the optimizer step to count the same.

    1 unless the step has fewer batches, or a smaller one, than `accumulate_grad_batches` full ones in every process.
    Where the loader does not say how large its batches are, all batches of a step count the same.
    """
    accumulate, num_batches = trainer.accumulate_grad_batches, trainer.num_training_batches
    if num_batches == float("inf"):
        return 1.0
    first = batch_idx // accumulate * accumulate
    end = min(first + accumulate, num_batches)
    loader, *others = trainer.fit_loop._combined_loader.flattened
    batch_size = loader.batch_size if isinstance(loader, DataLoader) and not others else None
    sampler: Any = getattr(loader, "sampler", None)
    try:
        own = len(sampler)
    except TypeError:
        batch_size = None
    if batch_size is None or trainer.overfit_batches:
        return accumulate / (end - first)
    world = shard_of(trainer)[1]
    total = sampler.num_used() if hasattr(sampler, "num_used") else own * world
    in_step = min(end * batch_size * world, total) - first * batch_size * world
    in_batch = min(batch_size, own - batch_idx * batch_size)
    return in_batch * world * accumulate / in_step


def _size(batch: Any) -> int:
    """Samples of a batch: rows of its first tensor, entries of its first list if it has no tensor, 0 if unknown."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    fields = _fields(batch)
    tensors = [field for field in fields if isinstance(field, Tensor) and field.ndim]
    if tensors:
        return len(tensors[0])
    sizes = [len(field) if isinstance(field, list | tuple) else _size(field) for field in fields]
    return next((size for size in sizes if size), 0)


def _fields(batch: Any) -> list[Any]:
    return list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [])


def _parts(batch: Any, num_parts: int) -> list[tuple[float, Any]]:
    """The batch in parts of nearly equal size, each with its share of the samples."""
    num_parts = min(num_parts, _size(batch)) if num_parts > 1 else 1
    if num_parts <= 1:
        return [(1.0, batch)]
    size = _size(batch)
    ends = [size * number // num_parts for number in range(num_parts + 1)]
    return [((end - start) / size, _cut(batch, slice(start, end), size)) for start, end in pairwise(ends)]


def _cut(batch: Any, part: slice, size: int) -> Any:
    """The same samples of every tensor, and of every list with an entry a sample."""
    # lists alone are of samples, as in detection; beside a tensor, a list of tensors (B, …) is several inputs
    lists_alone = not any(isinstance(field, Tensor) for field in _fields(batch))

    def cut(value: Any, is_field: bool = True) -> Any:
        if isinstance(value, Tensor):
            return value[part] if value.ndim and len(value) == size else value
        if isinstance(value, Mapping):
            named = {name: cut(entry) for name, entry in value.items()}
            return named if type(value) is dict else type(value)(named)  # type: ignore[call-arg]  # as BatchEncoding
        if not isinstance(value, list | tuple):
            return value
        inputs = not lists_alone and all(isinstance(entry, Tensor) and _size(entry) == size for entry in value)
        if is_field and len(value) == size and not inputs:
            return value[part]
        entries = [cut(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)

    return cut(batch, is_field=False)


def _copied(state: Any) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else list(value) for name, value in state.items()}
