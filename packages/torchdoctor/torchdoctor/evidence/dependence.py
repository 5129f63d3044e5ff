"""Finds dependences by running a step on a changed batch and comparing the two runs call by call."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from torchdoctor.running.batches import num_samples
from torchdoctor.running.record import Op, Record, memory, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject
from torchdoctor.running.unchanged import unchanged

DUPLICATE = 1
NOT_NUMBERS = "the results are NaN, which nothing changes"
BATCH_SIZES = (6, 5, 7, 4, 3, 9, 11, 13)  # numbers of samples to look at, the first that no other dimension has


def map_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to every tensor of a batch."""
    return pytree.tree_map_only(Tensor, change, batch)


def with_samples_twice(batch: Any) -> Any:
    """A batch of 2 B samples: the given one, (B, …), twice over."""
    return map_tensors(batch, lambda leaf: torch.cat([leaf, leaf]))


def split_batch(batch: Any, number: int) -> tuple[Any, Any]:
    """Splits a batch into its first samples and the others."""
    return map_tensors(batch, lambda leaf: leaf[:number]), map_tensors(batch, lambda leaf: leaf[number:])


def with_duplicate(batch: Any, source: int = 0) -> Any:
    """The batch with sample DUPLICATE replaced by another one."""
    return map_tensors(
        batch, lambda leaf: torch.cat([leaf[:DUPLICATE], leaf[source : source + 1], leaf[DUPLICATE + 1 :]])
    )


def distinguishable_batch(batch: Any) -> Any:
    """The first samples of a batch, so many that no other dimension is as long as the batch dimension."""
    size = num_samples(batch)
    if size is None:
        return None
    taken = {length for leaf in tensors(batch) for length in leaf.shape[1:]}
    count = next((n for n in BATCH_SIZES if n <= size and n not in taken), None)
    if count is None or any(isinstance(leaf, str) for leaf in pytree.tree_leaves(batch)):
        return batch if size not in taken else None
    return map_tensors(batch, lambda leaf: leaf[:count].clone())


def repeat_row(values: Any, row: int, num: int, total: int, time: slice, copies: int = 2) -> Any:
    """Repeats one of B samples, so that nothing is squeezed away, and cuts a part of the time of tensors (B, T, …)."""

    def cut(leaf: Tensor) -> Tensor:
        if not leaf.dim() or len(leaf) != num:
            return leaf
        alone = leaf[[row] * copies]
        return alone[:, time] if leaf.shape[1:2] == (total,) else alone

    return map_tensors(values, cut)


def evaluation_step(subject: Subject, batch: Any, training: bool = False, index: int = 0) -> Step:
    """Records a step in evaluation mode with a fixed seed: the validation step, if there is one.

    What it keeps for the next step, as a recurrent state, is forgotten. A training step has the gradients that it may
    ask for, but no optimizer moves a weight.
    """
    training = training or not subject.validates
    gradients = torch.enable_grad() if training else nullcontext()
    with unchanged(subject.model), subject.not_optimized(), subject.evaluating(), gradients:
        return subject.record(batch, training, index).checked()


def module_outputs(step: Step) -> list[Tensor]:
    """The outputs of the modules with parameters that a step calls."""
    calls = step.record.calls  # `parameters` may be the user's own
    results = [output for module, _, output in calls if next(nn.Module.parameters(module), None) is not None]
    return [leaf for leaf in tensors(results) if leaf.dim() and leaf.is_floating_point()]


def sample_outputs(step: Step, size: int) -> list[Tensor]:
    """Those outputs with one row a sample."""
    return [leaf for leaf in module_outputs(step) if len(leaf) == size]


def are_all_nan(leaves: list[Tensor]) -> bool:
    """Whether some result is NaN throughout, so that no change shows in it."""
    return any(leaf.numel() > 0 and bool(leaf.isnan().all()) for leaf in leaves)


def predictions(step: Step) -> list[Tensor]:
    """The predictions of a step's losses."""
    return [loss.prediction for loss in step.losses]


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """The elementwise difference of two tensors, relative to the mean magnitude of the first."""
    if not before.is_floating_point():
        return (before != after).double()
    scale = before.detach().double().abs().mean().clamp(min=1e-12)
    difference = (after.detach().double() - before.detach().double()).abs() / scale
    return difference.nan_to_num(0.0)  # −inf − −inf of masks


def first_violation(before: Record, after: Record, breaks: Callable[[Op, Op], bool]) -> Op | None:
    """The first call from the user's lines that breaks a rule, in two runs of one sequence of calls.

    What later calls write into is left out, as it is no more what the call made.
    """
    writing = (op for op in before.ops if _is_in_place(op.name))
    writers = {memory(op.inputs[0]): op for op in writing if op.inputs}
    for one, other in zip(before.ops, after.ops, strict=False):
        if one.name != other.name:
            return None
        is_whole = all(writers.get(memory(out), one) is one for out in one.outputs)
        if one.place is not None and is_whole and breaks(one, other):
            return one
    return None


def _is_in_place(name: str) -> bool:
    return name == "__setitem__" or (name.endswith("_") and not name.startswith("_"))


def module_name(model: nn.Module, part: nn.Module) -> str:
    """The name of a submodule."""
    return next((name for name, module in model.named_modules() if module is part), "") or type(part).__name__
