"""Finds the torch losses in a recorded step, with their predictions and targets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import Tensor, distributions

from torchdoctor.running.record import Op, Record

CLASSES = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_KINDS = {"classes": CLASSES, "binary": BINARY, "regression": REGRESSION}

_VIEWS = {"view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "squeeze_", "unsqueeze"}
_VIEWS |= {"unsqueeze_", "transpose", "t", "T", "mT", "permute", "movedim", "swapaxes", "expand", "expand_as"}
_PARTS = {"__getitem__", "select", "narrow", "index_select", "masked_select", "chunk", "split", "unbind", "stack"}
_PARTS |= {"cat"}
_SUMS = ("add", "add_", "radd", "sub", "sub_", "rsub")
COPIES = {"contiguous", "clone", "to", "type", "float", "double", "half", "bfloat16", "cpu", "cuda"}
SHAPE_ONLY = frozenset(_VIEWS | _PARTS | COPIES)  # change a tensor's shape, place or type, but not its values


@dataclass
class Loss:
    """One loss of a step.

    Args:
        op: the call.
        kind: classes (logits (B, K, …) or log-probabilities against indices or distributions), binary or regression.
        prediction: what the model says.
        target: what it is compared with.
    """

    op: Op
    kind: str
    prediction: Tensor
    target: Tensor

    @property
    def takes_logits(self) -> bool:
        """Whether the loss applies softmax or the sigmoid itself."""
        return self.op.name in ("cross_entropy", "binary_cross_entropy_with_logits")

    @property
    def num_classes(self) -> int:
        """K of a loss over classes."""
        return self.prediction.shape[1 if self.prediction.dim() > 1 else 0]

    def not_ignored(self, labels: Tensor) -> Tensor:
        """The class indices among these that differ from `ignore_index`."""
        return labels[labels != self.op.argument(4, "ignore_index", -100)]


def losses(record: Record) -> list[Loss]:
    """The losses of torch.nn.functional in a recorded step, in order, however they were called."""
    kinds = {name: kind for kind, names in _KINDS.items() for name in names}
    recorded = []
    for op in record.named(*kinds):
        prediction, target = op.argument(0, "input"), op.argument(1, "target")
        if isinstance(prediction, Tensor) and isinstance(target, Tensor) and prediction.requires_grad:
            recorded.append(Loss(op, kinds[op.name], prediction, target))
    return recorded


def summands(record: Record, value: Tensor) -> list[Tensor]:
    """The terms that a loss, a scalar, adds up or subtracts; the loss itself where it is no sum."""
    op = record.producer(value)
    inputs = [leaf for leaf in op.inputs if leaf.dim() == 0 and leaf is not value] if op is not None else []
    if op is None or op.name not in _SUMS or not inputs:
        return [value]
    return [term for leaf in inputs for term in summands(record, leaf)]


@contextmanager
def record_log_probs() -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Records each value and log-likelihood that torch distributions compute in this context."""
    log_probs: list[tuple[Tensor, Tensor]] = []

    def noting(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def log_prob(self: Any, value: Tensor) -> Tensor:
            out = original(self, value)
            log_probs.append((value, out))
            return out

        return log_prob

    with ExitStack() as stack:
        for kind in vars(distributions).values():
            if isinstance(kind, type) and "log_prob" in vars(kind):
                stack.enter_context(mock.patch.object(kind, "log_prob", noting(vars(kind)["log_prob"])))
        yield log_probs
