"""Unintended double precision."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record
from torchdoctor.running.subject import Subject

DTYPE_PROMOTION = Defect(
    "dtype-promotion",
    "warning",
    "Double precision halves the speed on CPUs and is up to 64 times slower on GPUs.",
    section="Performance",
)

_ASKED = ("double", "to", "type", "type_as")


def dtype_promotion(subject: Subject, least_share: float = 0.01) -> Iterator[Finding | str]:
    """Records a training step and looks for the first call that turns single precision into double.

    A tensor of dimension > 0 in float64 promotes what it meets (PyTorch's documentation of type promotion); the
    tensor's own origin is a NumPy array, whose default is float64. What was asked for by `.double()` is left alone.

    Args:
        subject: the training that has just begun.
        least_share: of the memory of a step's results that is a warning.
    """
    step = subject.step()
    record = step.record
    used = record.ancestors(step.loss) if step.loss is not None else set()
    for op in record.ops:
        promoted = _promotion(record, op)
        if promoted is not None and (not used or id(op.out) in used):
            single, double = promoted
            name = _name(subject, double)
            message = (
                f"{op.name} of float32 {tuple(single.shape)} and float64 {name or tuple(double.shape)} gives float64 "
                "from here on"
            )
            saved, defect = _saved(record), DTYPE_PROMOTION
            if saved >= least_share:
                message += f": float32 saves {saved:.0%} of the memory of the step's results"
            else:
                defect = replace(defect, severity="advice", impact="It costs next to nothing while it stays so small.")
            fix = f"{name or 'the tensor'}.float()  # where it is made"
            is_own = name.startswith("self.")  # a batch has other names where it is read
            yield Finding(defect, op.place, message, fix, {"tensor": name} if is_own else {})
            return
    if not any(leaf.dtype == torch.float64 for op in record.ops if op.grad for leaf in op.outputs if leaf.dim()):
        yield "the step computes in single precision"


PROBE = Probe(look=dtype_promotion, defects=(DTYPE_PROMOTION,))


def _promotion(record: Record, op: Op) -> tuple[Tensor, Tensor] | None:
    """A tensor in single or half precision and one in double that a call makes one in double of."""
    if not op.direct or op.place is None or not op.grad or op.name in _ASKED or op.name.startswith("__set"):
        return None
    floats = [leaf for leaf in op.inputs if leaf.is_floating_point() and leaf.dim()]
    singles = [leaf for leaf in floats if leaf.dtype != torch.float64]
    doubles = [leaf for leaf in floats if leaf.dtype == torch.float64]
    makers = [record.producer(leaf) for leaf in doubles]
    is_asked = all(maker is not None and maker.name in _ASKED for maker in makers)
    if not singles or not doubles or is_asked or all(leaf.dtype != torch.float64 for leaf in op.outputs):
        return None
    return singles[0], doubles[0]


def _saved(record: Record) -> float:
    """Half of what is float64, as a share of all results; a view is counted with what it shows."""
    results: dict[int, tuple[torch.dtype, int]] = {}
    for leaf in (leaf for op in record.ops for leaf in op.outputs):
        with suppress(NotImplementedError):  # torch.func's wrapped tensors have no storage
            results[leaf.untyped_storage().data_ptr()] = leaf.dtype, leaf.untyped_storage().nbytes()
    double = sum(size for dtype, size in results.values() if dtype == torch.float64)
    return double / 2 / max(1, sum(size for _, size in results.values()))


def _name(subject: Subject, tensor: Tensor) -> str:
    """What the user calls a tensor of the model or the batch."""
    for name, value in (*subject.model.named_parameters(), *subject.model.named_buffers()):
        if value is tensor:
            return f"self.{name}"
    for path, leaf in pytree.tree_flatten_with_path(subject.batches[0])[0]:
        if leaf is tensor:
            return f"batch{pytree.keystr(path)}"
    return ""
