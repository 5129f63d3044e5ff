"""Self-attention over sequences of one element."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from playbook.doctor.findings import Defect, Finding, Place
from playbook.doctor.record import Op
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject

SINGLE_TOKEN_ATTENTION = Defect(
    "single-token-attention",
    "warning",
    "Queries and keys learn nothing: the only weight is 1, and the layer is a linear one.",
)
DEFECTS = (SINGLE_TOKEN_ATTENTION,)
LIGHT = True
_AXES = {"scaled_dot_product_attention": -2, "multi_head_attention_forward": 0}  # of time, in query and key


def single_token(subject: Subject) -> Iterator[Finding | str]:
    """Looks for attention in which each query meets one key, itself, in the steps on all first batches.

    A sequence gets the length 1 from `x.unsqueeze(1)`, or from samples in the place of the sequence where a layer does
    not have `batch_first=True`. Cross-attention to one element, as a class or a text, is left alone.
    """
    lengths: dict[Place | None, set[int]] = {}
    for step in subject.steps():
        for op in _attention(step):
            query, key = (op.argument(number, name).shape for number, name in enumerate(("query", "key")))
            lengths.setdefault(op.place, set()).update((query[_AXES[op.name]], key[_AXES[op.name]]))
    for place, found in lengths.items():
        if found == {1}:
            message = f"self-attention over sequences of one element in each of {len(subject.batches)} steps"
            fix = "# a sequence (B, T, D) of several elements and batch_first=True, or nn.Linear in place of attention"
            yield Finding(SINGLE_TOKEN_ATTENTION, place, message, fix)
            return
    if lengths:
        yield "attention chooses among several elements"


def _attention(step: Step) -> Iterator[Op]:
    for op in step.record.named(*_AXES):
        given: list[Any] = [op.argument(number, name) for number, name in enumerate(("query", "key"))]
        if op.grad and all(isinstance(item, Tensor) and item.dim() > 1 for item in given):
            yield op
