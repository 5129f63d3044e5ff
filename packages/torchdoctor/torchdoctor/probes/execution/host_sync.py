"""Lines that synchronize with the accelerator in every training step."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from sys import _getframe
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY, losses
from torchdoctor.running.record import Op, Record, memory, tensors
from torchdoctor.running.subject import Subject

HOST_SYNC = Defect(
    "host-sync",
    "warning",
    "An accelerator is waited for in every step instead of being kept busy.",
    section="Performance",
    shown_by=Evidence("measured", "the lines that read values were noted over several training steps"),
)

_INDICES = (1, 2, 3, 5, 7)  # so that "every 10 steps" does not count
_READS = {
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
    "cpu": ".cpu()",
    "__array__": "a conversion to NumPy",
    "__bool__": "a Python branch on a tensor",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "a Python index",
    "__format__": "formatting",
    "__repr__": "printing",
    "is_nonzero": "a Python branch on a tensor",
    "equal": "torch.equal",
    "allclose": "torch.allclose",
}
_DETACH = "….detach()  # add it up on the device; read, compare or print it every 50 steps, or once an epoch"
_DRAWS = ("multinomial", "bernoulli", "normal", "poisson", "binomial")
_TOLD = ("print", "warn", "warning", "error", "info", "debug")
_MANY = 8  # readings of one line in a step, which one .tolist() replaces
_BRANCHES = ("__bool__", "is_nonzero", "equal", "allclose")
_METHODS = ("_tensor.py", "overrides.py")  # of torch, through which a tensor's own methods go


def host_sync(subject: Subject) -> Iterator[Finding | str]:
    """Runs steps 1, 2, 3, 5 and 7 with the hooks of a batch, and keeps the user's own lines that read values in each.

    What is read must come from the model, or be a fraction or a branch on the batch: whole numbers of a batch alone
    are lengths and counts that shapes need, unless a line reads many one by one. Answers to what the step takes from
    outside, as the actions that an environment waits for, must be read and are spared, as are samples of distributions,
    but not what is computed from a loss. What is computed from tensors that a step has brought to the CPU is there.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    rounds: list[dict[Place, list[str]]] = []
    for number, index in enumerate(_INDICES):
        batch = subject.batches[number % len(subject.batches)]
        torch.manual_seed(index)
        with subject.at(1, index), _Reads() as record:  # neither the first epoch nor a round step
            _step(subject, batch, index)
        rounds.append(record.lines(subject, batch))
        if number and not set(rounds[0]).intersection(*rounds[1:]):
            break
    every = set(rounds[0]).intersection(*rounds[1:])
    if subject.script is not None:
        every = {place for place in every if not _is_counted(place)}
    for place in sorted(every):
        calls = " and ".join(dict.fromkeys(_READS[name] for name in rounds[0][place]))
        times = len(rounds[0][place])
        often = "here" if times == 1 else f"{times} times here"
        message = f"{calls} {often} in every training step: each time, an accelerator must finish all its work first"
        fix = _fix(rounds[0][place], place)
        values = {"variant": "detach"} if fix == _DETACH and "cpu" not in rounds[0][place] else {}
        yield Finding(HOST_SYNC, place, message, fix, values | {"reads": calls})
    if not every:
        yield "no line before the optimizer's step reads results or losses in every step"


PROBE = Probe(look=host_sync, defects=(HOST_SYNC,), is_light=True)


class _Reads(Record):
    """Calls of torch, and which of them read a value at the user's own line."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, Op, Place]] = []

    def before(self, op: Op) -> None:
        name = _name(op)
        if name in _READS and op.inputs and op.place is not None and _is_own(_getframe(2)):
            self.reads.append((name, op, op.place))

    def after(self, op: Op) -> None:
        is_dense = isinstance(op.out, Tensor) and op.out.layout == torch.strided
        if is_dense and _name(op) == "cpu" and op.inputs and op.out is op.inputs[0]:
            op.out = op.out.view_as(op.out)  # another one, as it is where the model is elsewhere

    def lines(self, subject: Subject, batch: Any) -> dict[Place, list[str]]:
        """Lines that read values of the model or the batch, and how."""
        weights, batch_ids = ({id(leaf) for leaf in leaves} for leaves in (subject.model.parameters(), tensors(batch)))
        known = weights | batch_ids | {id(leaf) for leaf in subject.model.buffers()}
        moved = {id(leaf) for op in self.named("to", "cuda") for leaf in op.inputs}
        sent = batch_ids & moved if subject.script else batch_ids  # Lightning sends whole batches
        measured = {id(loss.op.out) for loss in losses(self)}
        here = {id(op.out) for op in self.ops if _name(op) == "cpu" and not _is_transfer(op)}
        names_by_line: dict[Place, list[str]] = {}
        places = Counter(place for _, _, place in self.reads)
        for name, op, place in self.reads:
            tensor = op.inputs[0]
            family = self.ancestors(tensor)
            if family & here or self._is_drawn(tensor):
                continue
            if tensor.requires_grad or family & weights:
                is_kept = name == "cpu" and not any(taker.name in _READS for taker in self.takers(op.out))
                counts = is_kept or bool(family & (batch_ids | measured)) or not self._takes_others(family, known)
            else:
                is_single = tensor.is_floating_point() or name in _BRANCHES or places[place] >= _MANY
                counts = bool(family & sent) and is_single
            if counts and not (name == "cpu" and _is_transfer(op)) and not _asserts(place) and not _is_first(place):
                names_by_line.setdefault(place, []).append(name)
        return names_by_line

    def _is_drawn(self, tensor: Tensor) -> bool:
        """Whether this is a sample of a distribution, as of actions, which what is outside waits for."""
        maker = self.producer(tensor, SHAPE_ONLY | {"detach"})
        return maker is not None and maker.name in _DRAWS

    def _takes_others(self, family: set[int], known: set[int]) -> bool:
        """Whether tensors were computed from such that neither a call of torch made nor the model or the batch has."""
        leaves = [leaf for op in self.ops for leaf in op.inputs if id(leaf) in family and id(leaf) not in known]
        from_python = [out for op in self.named("tensor", "as_tensor", "asarray") for out in op.outputs if out.dim()]
        inner = {memory(leaf) for op in self.ops for leaf in op.inputs if id(leaf) in known or self.makers(leaf)}
        is_outer = any(not self.makers(leaf) and memory(leaf) not in inner for leaf in leaves)  # Variable(x) shares x
        return is_outer or any(id(out) in family for out in from_python)


def _name(op: Op) -> str:
    options = map(str, (*op.args[1:], *op.kwargs.values()))
    return "cpu" if op.name == "to" and any(re.fullmatch(r"cpu(:\d+)?", option) for option in options) else op.name


def _is_transfer(op: Op) -> bool:
    """Whether this is `.to(device)`, which is the CPU only here."""
    return op.place is None or "cpu" not in op.place.code


def _is_own(frame: FrameType | None) -> bool:
    """Whether only the tensor's own methods and NumPy stand between a call and the user's line."""
    while frame is not None and (
        (source.is_torch(frame.f_code.co_filename) and frame.f_code.co_filename.endswith(_METHODS))
        or "numpy" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame is not None and source.is_user(frame.f_code.co_filename)


def _asserts(place: Place) -> bool:
    """An assertion is a check that `python -O` leaves out."""
    nodes = ast.walk(source.tree(place.file))
    return any(isinstance(node, ast.Assert) and node.lineno <= place.line <= (node.end_lineno or 0) for node in nodes)


def _is_first(place: Place) -> bool:
    """Whether a line sets what it is asked for not being set: `if mean is None: mean = loss.item()`."""
    tests = {ast.unparse(node.test) for node in source.around(place, ast.If)}
    return not tests.isdisjoint(f"{name} is None" for name in source.assigned_at(place))


def _is_counted(place: Place) -> bool:
    """Whether a line runs in some turns of a counter alone: that of a script may be an argument, which stands still."""
    tests = [node.test for node in source.around(place, ast.If)]
    return any(isinstance(node, ast.Mod) for test in tests for node in ast.walk(test))


def _step(subject: Subject, batch: Any, index: int) -> None:
    model = subject.model
    model.on_train_batch_start(batch, index)
    loss = subject.train(batch, index)
    if model.automatic_optimization and loss is not None:
        loss.backward()
        model.on_after_backward()
        model.on_before_optimizer_step(subject.trainer.optimizers[0])
        for optimizer in subject.trainer.optimizers:
            optimizer.zero_grad()
    model.on_train_batch_end(loss if loss is None else {"loss": loss.detach()}, batch, index)


def _fix(names: list[str], place: Place) -> str:
    stops = [node for node in source.around(place, ast.If) if node.test.lineno == place.line]
    is_check = any(next(source.calls(node.test, "isnan", "isinf", "isfinite"), None) for node in stops)
    is_told = any(isinstance(part, ast.Expr) and any(source.calls(part, *_TOLD)) for s in stops for part in s.body[-1:])
    if is_check or is_told or any(isinstance(node.body[-1], ast.Raise) for node in stops):
        return "# check it every 100 steps"
    if any(isinstance(part, ast.Break | ast.Continue) for node in stops for part in ast.walk(node)):
        return "# a mask over all of them, in place of a branch for each"
    if set(names) & set(_BRANCHES):
        return "torch.where(condition, one, other)  # decides on the device, but computes both: clamp a divisor"
    if set(names) & {"__repr__", "__format__"}:
        return "# write it every 50 steps, or once an epoch"
    if len(names) >= _MANY:
        return "values = ….tolist()  # of all, before or after the loop: one reading in place of many"
    return _DETACH
