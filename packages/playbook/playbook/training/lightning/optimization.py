"""Gradients and losses: what an optimizer calls for a batch, and whether its step is due."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from torch import Tensor
from torch.optim import Optimizer

from playbook.training.lightning.hooks import StepHooks


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
    """Lightning's way, but for plain steps, where hooks that nothing overrides are not called."""

    def __init__(self, trainer: Trainer, closure: Callable[..., BatchClosure]) -> None:
        super().__init__(trainer)
        self.closure = closure

    @property
    def hooks(self) -> StepHooks | None:
        """Those of a plain step."""
        return getattr(self.trainer.fit_loop.epoch_loop, "hooks", None)

    def _make_closure(self, kwargs: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int) -> Closure:
        return self.closure(self, kwargs, optimizer, batch_idx)

    def _training_step(self, kwargs: OrderedDict[str, Any]) -> ClosureResult:
        if (hooks := self.hooks) is None:
            return super()._training_step(kwargs)
        module = hooks.module
        module.__dict__["_current_fx_name"] = "training_step"
        context = hooks.precision.train_step_context() if hooks.has_context else nullcontext()
        with hooks.in_strategy("training_step"), context:
            output = module.training_step(*kwargs.values())
        return ClosureResult.from_training_step_output(output, self.trainer.accumulate_grad_batches)

    def _make_backward_fn(self, optimizer: Optimizer) -> Callable[[Tensor], None] | None:
        if (hooks := self.hooks) is None or self._skip_backward:
            return super()._make_backward_fn(optimizer)
        return partial(_backward, hooks)

    def _on_before_zero_grad(self, optimizer: Optimizer) -> None:
        if (hooks := self.hooks) is None:
            return super()._on_before_zero_grad(optimizer)
        self.optim_progress.optimizer.zero_grad.increment_ready()
        hooks("on_before_zero_grad", optimizer)
        return self.optim_progress.optimizer.zero_grad.increment_started()

    def _optimizer_zero_grad(self, batch_idx: int, optimizer: Optimizer) -> None:
        if (hooks := self.hooks) is None:
            return super()._optimizer_zero_grad(batch_idx, optimizer)
        hooks.call_module("optimizer_zero_grad", self.trainer.current_epoch, batch_idx, optimizer)
        return self.optim_progress.optimizer.zero_grad.increment_completed()

    def _optimizer_step(self, batch_idx: int, train_step_and_backward_closure: Callable[[], Tensor | None]) -> None:
        hooks = self.hooks
        if hooks is None or hooks.overrides("optimizer_step"):
            return super()._optimizer_step(batch_idx, train_step_and_backward_closure)
        optimizer, progress = self.trainer.strategy.optimizers[0], self.optim_progress.optimizer.step

        def closure() -> Tensor | None:
            loss = train_step_and_backward_closure()
            hooks("on_before_optimizer_step", optimizer)
            if self.trainer.gradient_clip_val is not None or hooks.overrides("configure_gradient_clipping"):
                hooks.call_module(
                    "configure_gradient_clipping",
                    optimizer,
                    gradient_clip_val=self.trainer.gradient_clip_val,
                    gradient_clip_algorithm=self.trainer.gradient_clip_algorithm,
                )
            return loss

        progress.increment_ready()
        with hooks.in_module("optimizer_step"):
            optimizer.step(closure=closure)  # type: ignore[arg-type]  # None where training_step returned none
        return progress.increment_completed()


def _backward(hooks: StepHooks, loss: Tensor) -> None:
    with hooks.in_strategy("backward"):
        hooks("on_before_backward", loss)
        hooks.module.backward(loss)
        hooks("on_after_backward")


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
