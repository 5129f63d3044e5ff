"""A recorded step as probes see it: torch calls, loss, gradients, or the error that ended it."""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from torchdoctor.findings import Place
from torchdoctor.running.graph import is_stale
from torchdoctor.running.losses import Loss, losses
from torchdoctor.running.record import Op, Record


@dataclass
class Step:
    """A training or validation step on one batch.

    Args:
        batch: that it got.
        record: of its calls of torch; those before the error, if it raised one.
        loss: what a training step returned, or gave to `manual_backward`.
        error: that ended it.
        grads: the loss's gradient at every tensor of the record, by identity, once it has gone backwards.
        likelihoods: values, and their log-likelihoods by distributions of torch's.
    """

    batch: Any
    record: Record
    loss: Tensor | None
    error: Exception | None = None
    grads: dict[int, Tensor] = field(default_factory=dict)
    likelihoods: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def checked(self) -> "Step":
        """The step itself.

        Raises:
            Exception: that ended it.
        """
        if self.error is not None:
            raise self.error
        return self

    @cached_property
    def losses(self) -> list[Loss]:
        """Its losses of torch.nn.functional, in order."""
        return losses(self.record)

    @cached_property
    def batch_ids(self) -> set[int]:
        """The ids of the batch's tensors."""
        return {id(leaf) for leaf in pytree.tree_leaves(self.batch) if isinstance(leaf, Tensor)}

    def sources(self, tensor: Tensor) -> set[int]:
        """The ids of the batch's tensors whose values, not only shapes, a tensor was computed from."""
        return self.batch_ids & self.record.ancestors(tensor, _takes_values)

    def is_from_data(self, tensor: Tensor) -> bool:
        """Whether a tensor was computed from values of the batch."""
        return bool(self.sources(tensor))

    def go_backwards(self) -> None:
        """Runs the backward pass of the loss, and keeps the gradients."""
        if self.loss is None or not self.loss.requires_grad:
            return
        ops = self.record.ops
        leaves = {id(leaf): leaf for op in ops for leaf in (*op.inputs, *op.outputs) if leaf.requires_grad}
        known = {key: leaf for key, leaf in leaves.items() if not is_stale(leaf)}
        hooks = [leaf.register_hook(partial(self._keep_gradient, key)) for key, leaf in known.items()]
        self.loss.sum().backward(retain_graph=True)
        for hook in hooks:
            hook.remove()

    def _keep_gradient(self, key: int, gradient: Tensor | None) -> None:
        if gradient is not None:  # of a result that nobody uses, as the last cell of an LSTM
            self.grads[key] = gradient


def supervised_positions(step: Step, loss: Loss) -> Tensor | None:
    """Mask of the positions whose scores a class loss trains, in the shape of its target; None if unclear.

    Ignored labels, masks that multiply the loss afterwards and weights of zero all leave scores without a gradient,
    unless another loss reads them as well.
    """
    gradient = step.grads.get(id(loss.prediction))
    if gradient is None or loss.kind != "classes" or loss.target.is_floating_point() or gradient.isnan().any():
        return None
    moved = (gradient != 0).any(1 if gradient.dim() > 1 else 0)
    is_counted = loss.target != loss.op.argument(4, "ignore_index", -100)
    return moved & is_counted if moved.shape == loss.target.shape else None


def _takes_values(op: Op, output: Tensor) -> bool:
    if op.takes_shape_alone:
        return False
    return all(output is not item for item in op.inputs)


def is_scalar(out: Any) -> bool:
    """Whether this is a single number with a gradient, as a loss is."""
    return isinstance(out, Tensor) and out.dim() == 0 and out.requires_grad


def last_line(record: Record) -> Place | None:
    """The line of the reduction that makes the loss."""
    scalars = [op for op in record.ops if op.direct and is_scalar(op.out) and op.name not in ("detach", "log")]
    return scalars[-1].place if scalars else None
