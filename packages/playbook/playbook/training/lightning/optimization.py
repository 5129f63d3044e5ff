"""Gradients and losses: what an optimizer calls for a batch, and whether its step is due."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from torch import Tensor
from torch.optim import Optimizer


class BatchClosure(Closure):
    """What an optimizer calls for one batch: forward pass, zero_grad, backward pass; subclasses put them together.

    Under gradient accumulation, Lightning itself calls the closures of all batches but the last of a step.
    """

    def __init__(
        self, loop: _AutomaticOptimization, kwargs: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int
    ) -> None:
        plain = _AutomaticOptimization._make_closure(loop, kwargs, optimizer, batch_idx)
        super().__init__(plain._step_fn, plain._backward_fn, plain._zero_grad_fn)
        self.trainer: Trainer = loop.trainer
        self.optimizer = optimizer
        self.batch_idx = batch_idx
        self._kwargs = kwargs
        self._training_step = loop._training_step

    @property
    def batch(self) -> Any:
        """The batch; None where training_step takes an iterator in its place."""
        return self._kwargs.get("batch")

    @property
    def begins_step(self) -> bool:
        """Whether the batch is the first of its optimizer step."""
        return self.batch_idx % self.trainer.accumulate_grad_batches == 0

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward pass; stochastic weight averaging updates batch norms without one."""
        return self._backward_fn is not None

    def forward(self, batch: Any) -> ClosureResult:
        """Runs training_step on the whole batch or on a part of it; its loss is divided by the accumulated batches."""
        kwargs = self._kwargs if batch is self.batch else OrderedDict(self._kwargs, batch=batch)
        try:
            return self._training_step(kwargs)
        except StopIteration as error:  # Lightning would take it for the end of the data, and go on without a word
            if "batch" not in kwargs:
                raise
            raise RuntimeError("training_step raised StopIteration") from error

    def zero_grad(self) -> None:
        """Sets the gradients to None where the batch is the first of its optimizer step."""
        if self._zero_grad_fn is not None:
            self._zero_grad_fn()

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of a loss, with all hooks of a backward pass."""
        assert self._backward_fn is not None, "see has_backward"
        self._backward_fn(loss)


class _Optimization(_AutomaticOptimization):
    def __init__(self, trainer: Trainer, closure: Callable[..., BatchClosure]) -> None:
        super().__init__(trainer)
        self.closure = closure

    def _make_closure(self, kwargs: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int) -> Closure:
        return self.closure(self, kwargs, optimizer, batch_idx)


def replace_closures(trainer: Trainer, closure: Callable[..., BatchClosure]) -> None:
    """In setup: has automatic optimization call these closures. A second fit keeps the loop, and so its counters.

    Args:
        trainer: before its fit.
        closure: takes the arguments of BatchClosure.
    """
    loop = trainer.fit_loop.epoch_loop
    if not isinstance(loop.automatic_optimization, _Optimization):
        loop.automatic_optimization = _Optimization(trainer, closure)


def gradients_accumulate(trainer: Trainer) -> bool:
    """During a training batch: whether the optimizer step of its gradients comes with a later batch."""
    return trainer.fit_loop._should_accumulate()


def gradients_are_pending(trainer: Trainer) -> bool:
    """At the start of a batch or during a validation: whether earlier batches still wait for their optimizer step."""
    if trainer.validating:
        return gradients_accumulate(trainer)
    ready = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return (ready - 1) % trainer.accumulate_grad_batches != 0


def loss_of(outputs: Any) -> Any:
    """The loss in what training_step returned: a tensor, a dict that has one, or None."""
    return outputs.get("loss") if isinstance(outputs, dict) else outputs
