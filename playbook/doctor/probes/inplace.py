"""Changes in place of what backward still needs."""

import re
from collections.abc import Iterator

from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.record import Op, Record
from playbook.doctor.subject import Subject

INPLACE_ON_GRAPH = Defect(
    "inplace-on-graph",
    "critical",
    "Backward ends with an error, or takes values that have been overwritten.",
    explains=("crash",),
    shown_by=Evidence("measured", "backward was run, and the versions of its tensors were noted"),
)
DEFECTS = (INPLACE_ON_GRAPH,)
LIGHT = True
_SIGNS = (
    "modified by an inplace operation",
    "is being used in an in-place operation",
    "is a view and is being modified",
)


def inplace(subject: Subject) -> Iterator[Finding | str]:
    """Runs a training step and its backward; if autograd refuses, looks for the change among the recorded calls.

    Autograd's error carries no line of the user's, but the shape of the tensor and what made it.
    """
    try:
        with Record() as record:
            loss = subject.train(subject.batches[0])
        if loss is not None and loss.requires_grad and subject.model.automatic_optimization:
            loss.sum().backward()
    except RuntimeError as error:
        text = " ".join(str(error).split())
        if not any(sign in text for sign in _SIGNS):
            return
        changes = [op for op in record.ops if _is_inplace(op) and op.place is not None]
        op = _culprit(changes, record, text)
        name = op.name if op else "a call"
        message = f"{name} changes a tensor that backward needs: {text[:160]}"
        yield Finding(INPLACE_ON_GRAPH, op.place if op else None, message, _fix(op))
        return
    yield "nothing that backward needs is changed in place"


def _is_inplace(op: Op) -> bool:
    name = op.name
    return (
        name in ("__setitem__", "copy_")
        or bool(re.fullmatch(r"__i\w+__|\w*[a-z0-9]_", name))
        or op.kwargs.get("inplace", False)
    )


def _culprit(changes: list[Op], record: Record, text: str) -> Op | None:
    """The change whose tensor has the shape, and whose maker the name, that the error gives."""
    shape = re.search(r"\[torch\.\w+ \[([\d, ]*)\]\]", text)
    maker = re.search(r"output \d+ of (\w+?)Backward", text)
    if not shape:
        return changes[-1] if changes else None
    sizes = tuple(int(size) for size in shape[1].split(",") if size.strip())
    fitting = [op for op in changes if op.inputs and tuple(op.inputs[0].shape) == sizes]
    for op in fitting:
        names = [made.name for made in record.ops if any(out is op.inputs[0] for out in made.outputs)]
        if maker and any(name.strip("_").replace("_", "").lower() in maker[1].lower() for name in names[:1]):
            return op
    return (fitting or changes or [None])[0]


def _fix(op: Op | None) -> str:
    code = op.place.code if op and op.place else ""
    change = re.match(r"(\w[\w.]*)\s*([-+*/])=\s*(.+)", code)
    return (
        f"{change[1]} = {change[1]} {change[2]} {change[3]}"
        if change
        else "x = x.clone()  # before the change, or out of place"
    )
