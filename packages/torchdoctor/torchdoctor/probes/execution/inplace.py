"""In-place changes of tensors that backward needs."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record, tensors
from torchdoctor.running.subject import Subject

INPLACE_ON_GRAPH = Defect(
    "inplace-on-graph",
    "critical",
    "Backward ends with an error, or takes values that have been overwritten.",
    explains=("crash",),
    shown_by=Evidence("measured", "backward was run, and the versions of its tensors were noted"),
)


def inplace(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Runs a training step and compares the versions of saved tensors with those at the backward pass.

    A tensor's version counts the changes in place of its memory; autograd refuses a saved tensor of another version,
    and some changes of leaves and views at once (PyTorch's notes on autograd mechanics).
    """
    with _Writes() as record, saved_tensors_hooks(record.pack, record.unpack):
        try:
            loss = subject.train(subject.batches[0])
            if loss is not None and loss.requires_grad and subject.model.automatic_optimization:
                loss.sum().backward()
        except RuntimeError as error:
            if record.refused is None:
                return
            op, what = record.refused, " ".join(str(error).split())[:160]
        else:
            op, what = record.culprit()
    if not what and subject.script is not None and subject.script.reads_state:
        yield NotLookedAt(INPLACE_ON_GRAPH, "a state goes on from step to step, and each step is looked at alone")
        return
    if not what:
        yield "nothing that backward needs is changed in place"
        return
    message = f"{op.name if op else 'a call'} changes a tensor that backward needs: {what}"
    yield Finding(INPLACE_ON_GRAPH, op.place if op else None, message, _fix(op))


PROBE = Probe(look=inplace, defects=(INPLACE_ON_GRAPH,), is_light=True)


class _Writes(Record):
    """Calls of torch, those that change tensors in place, and what is saved for backward and changed before it."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: Op | None = None  # a change that is possible only without gradients
        self._writes: list[tuple[Op, Tensor, int]] = []  # with the version after it
        self._changed: tuple[Tensor, int] | None = None  # with the version that was saved

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        number = len(self.ops)
        versions = [(leaf, leaf._version) for leaf in tensors((args, kwargs)) if not leaf.is_inference()]
        try:
            out = super().__torch_function__(func, types, args, kwargs)
        except RuntimeError:
            with suppress(RuntimeError), torch.no_grad():
                func(*args, **kwargs or {})
            is_changed = any(leaf._version > before for leaf, before in versions)
            self.refused = next(iter(self.ops[number:]), None) if is_changed else None
            raise
        changed = [leaf for leaf, before in versions if leaf._version > before]
        self._writes += [(op, leaf, leaf._version) for op in self.ops[number : number + 1] for leaf in changed]
        return out

    def pack(self, saved: Tensor) -> tuple[Tensor, int]:
        return saved, saved._version

    def unpack(self, packed: tuple[Tensor, int]) -> Tensor:
        saved, version = packed
        if saved._version > version and self._changed is None:
            self._changed = packed
        return saved

    def culprit(self) -> tuple[Op | None, str]:
        """The call that changed a saved tensor first, and what was changed; nothing if none was."""
        if self._changed is None:
            return None, ""
        saved, version = self._changed
        later = [(op, leaf) for op, leaf, after in self._writes if after > version]
        op = next((op for op, leaf in later if _share_memory(leaf, saved) and op.place is not None), None)
        maker = next((call for call in self.ops if any(_share_memory(out, saved) for out in call.outputs)), None)
        origin = f", made by {maker.name}," if maker else ""
        return op, f"{tuple(saved.shape)}{origin} is at version {saved._version}, and was saved at version {version}"


def _share_memory(one: Tensor, other: Tensor) -> bool:
    with suppress(NotImplementedError):  # sparse tensors have no storage
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return False


def _fix(op: Op | None) -> str:
    code = op.place.code if op and op.place else ""
    change = re.match(r"(\w[\w.]*)\s*([-+*/])=\s*(.+)", code)
    return (
        f"{change[1]} = {change[1]} {change[2]} {change[3]}"
        if change
        else "x = x.clone()  # before the change, or out of place"
    )
