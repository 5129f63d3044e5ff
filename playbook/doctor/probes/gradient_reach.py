"""Which parameters the loss reaches, and which of those an optimizer moves."""

import ast
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from playbook.doctor import blame, source
from playbook.doctor.findings import TRAINING, Defect, Finding, Place
from playbook.doctor.record import Op
from playbook.doctor.subject import Subject, Watch

DETACHED_GRAPH = Defect(
    "detached-graph",
    "critical",
    "Everything before this line stays as it was initialised.",
    explains=("loss-not-decreasing",),
    shown_by=TRAINING,
)
UNUSED_PARAMETER = Defect(
    "unused-parameter",
    "warning",
    "Dead weights cost memory, and DDP ends with an error on them.",
    section="Code quality",
    shown_by=TRAINING,
)
PARAMETER_NOT_OPTIMIZED = Defect(
    "parameter-not-optimized",
    "critical",
    "These parameters stay as they were initialised.",
    explains=("loss-not-decreasing",),
    shown_by=TRAINING,
)
DEFECTS = (DETACHED_GRAPH, UNUSED_PARAMETER, PARAMETER_NOT_OPTIMIZED)
_CUT_FIX = "# leave out what cuts the graph: detach, data, item, no_grad"
_CUTS = ("detach", "detach_", "data", "item", "tolist", "numpy", "tensor", "as_tensor", "from_numpy", "cpu")


def gradient_reach(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps and notes at each step of an optimizer which parameters have a gradient.

    What has one and is in no optimizer was forgotten. What has none is unused if no call takes it, or nothing takes
    what a call makes of it, or other values of it leave the loss as it is, and cut off otherwise. Four kinds are right
    as they are: what is frozen, what is only used without gradients and not optimised (a teacher), what begins as a
    copy of what is optimised (a target network), and what changes all the same (a moving average).
    """
    if subject.model.automatic_optimization and (cut := _whole_cut(subject)) is not None:
        yield cut
        return
    notes = subject.watch(_Watch)
    if not notes.steps:
        return
    before, uses = notes.before, notes.uses
    trainable = {name: p for name, p in notes.parameters.items() if p.requires_grad}
    forgotten = [n for n, p in trainable.items() if n in notes.reached and id(p) not in notes.optimised]
    if _are_copies(forgotten, [n for n, p in trainable.items() if id(p) in notes.optimised], before):
        forgotten = []
    stuck = {n: p for n, p in trainable.items() if n not in notes.reached and torch.equal(before[n], p)}
    cut = [n for n, p in stuck.items() if id(p) in notes.optimised and id(p) in uses and not _goes_on(uses[id(p)], p)]
    idle = [n for n in cut if _leads_nowhere(uses[id(stuck[n])], stuck[n])]
    cut = [n for n in cut if n not in idle]
    needless = [n for n in cut if not _matters(subject, stuck[n])]
    unused = [n for n, p in stuck.items() if id(p) not in uses or n in needless]
    if forgotten:
        message = f"{_listed(forgotten)}: a gradient arrives, but no optimizer has them"
        yield Finding(PARAMETER_NOT_OPTIMIZED, _optimizer(subject), message, "torch.optim.…(self.parameters(), …)")
    for place, names in _by_place({n: uses[id(stuck[n])][0].place for n in idle}).items():
        message = f"{_listed(names)}: nothing takes the result, and no gradient arrives in {notes.steps} steps"
        yield Finding(UNUSED_PARAMETER, place, message, "# use the result, or leave the call out and delete the layer")
    for place, names in _by_place({n: _cut(uses[id(stuck[n])], stuck[n]) for n in cut if n not in needless}).items():
        message = f"{_listed(names)}: used in the step, but no gradient arrives in {notes.steps} steps"
        yield Finding(DETACHED_GRAPH, place, message, _CUT_FIX)
    for place, names in _by_place({n: _made(subject.model, _whole(n, unused, trainable)) for n in unused}).items():
        message = f"{_listed(names)}: the loss does not depend on them, and no gradient arrives in {notes.steps} steps"
        yield Finding(UNUSED_PARAMETER, place, message, "# use the layer in forward, or delete it")
    if not (forgotten or cut or idle or unused):
        yield f"every trainable parameter gets a gradient ({len(trainable)} tensors)"


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.parameters = dict(subject.model.named_parameters())
        self.before = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.uses = _uses(subject)
        self.reached: set[str] = set()
        self.optimised: set[int] = set()
        self.steps = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        register_optimizer_step_pre_hook(self.before_step)

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        for group in optimizer.param_groups:
            if group["lr"] == 0:  # in a warm-up, where moving averages have nothing to follow
                group["lr"] = 1e-3
        self.optimised |= {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.reached |= {name for name, p in self.parameters.items() if p.grad is not None}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for optimizer in trainer.optimizers:
            self.optimised |= {id(p) for group in optimizer.param_groups for p in group["params"]}


WATCH = _Watch


def _uses(subject: Subject) -> dict[int, list[Op]]:
    """The calls that take each parameter, in training and validation steps, and the calls after them."""
    found: dict[int, list[Op]] = {}
    steps = [(step, True) for step in subject.steps(2)]
    if subject.validates:
        steps.append((subject.step(training=False), False))
    for step, training in steps:
        ops = step.record.ops
        for index, op in enumerate(ops):
            for tensor in op.inputs if _computes(op) else ():
                if isinstance(tensor, nn.Parameter):
                    found.setdefault(id(tensor), ops[index:] if training else [op])
    return found


def _are_copies(names: list[str], optimised: list[str], values: dict[str, Tensor]) -> bool:
    """Whether these parameters begin as those of an optimised network: a target, which gets its weights from there."""
    equal = [any(torch.equal(values[name], values[other]) for other in optimised) for name in names]
    return all(equal) and any(values[name].dim() > 1 for name in names)


def _computes(op: Op) -> bool:
    """Whether a call takes values: not a device, or a gradient that is not there."""
    return bool(op.outputs) or op.name in _CUTS


def _goes_on(ops: list[Op], parameter: Tensor) -> bool:
    """Whether what is cut off is also used with its graph: then there was nothing to learn in these steps."""
    cut = {id(leaf) for op in ops if op.name in _CUTS for leaf in op.inputs if _leads_to(leaf, parameter)}
    others = [op for op in ops if op.grad and op.name not in _CUTS and any(id(leaf) in cut for leaf in op.inputs)]
    return any(out.requires_grad for op in others for out in op.outputs)


def _matters(subject: Subject, parameter: nn.Parameter) -> bool:
    """Whether validation takes a parameter, or the loss of a step changes with it or cannot be compared."""
    if subject.validates and subject.attempt(training=False).record.takers(parameter):
        return True
    losses = []
    for change in (0.0, 1.0):
        with subject.unchanged():
            parameter.data += change
            losses.append(subject.record(subject.batches[0]).loss)
    before, after = losses
    return before is None or after is None or not torch.equal(before, after)


def _leads_nowhere(ops: list[Op], parameter: Tensor) -> bool:
    """Whether all that is made of a parameter has a graph, so that it is only left out of the loss."""
    taking = [op for op in ops if any(leaf is parameter or _leads_to(leaf, parameter) for leaf in op.inputs)]
    return not any(op.name in _CUTS or (op.outputs and not op.outputs[0].requires_grad) for op in taking)


def _cut(ops: list[Op], parameter: Tensor) -> Place | None:
    """The call that leaves a parameter behind: made without gradients, or taking its values alone."""
    for op in ops:
        if not op.grad and _computes(op) and any(tensor is parameter for tensor in op.inputs):
            return source.without_gradients(op.places) or op.place
    for op in ops:
        if op.name in _CUTS and any(_leads_to(tensor, parameter) for tensor in op.inputs):
            return op.place
    return ops[0].place


def _whole_cut(subject: Subject) -> Finding | None:
    """A finding if the loss has no gradient at all: at the last call that takes something with one, and gives none."""
    step = subject.step()
    record, loss = step.record, step.loss
    if not isinstance(loss, Tensor) or loss.requires_grad:
        return None
    cuts = [
        op
        for op in record.ops
        if any(leaf.requires_grad for leaf in op.inputs) and not any(out.requires_grad for out in op.outputs)
    ]
    kin = record.ancestors(loss)
    made = [op for op in cuts if any(id(out) in kin for out in op.outputs)]
    made = made or [op for op in cuts if op.name in _CUTS]
    place = source.definition(type(subject.model).training_step)
    if made:
        place = (None if made[-1].grad else source.without_gradients(made[-1].places)) or made[-1].place
    return Finding(DETACHED_GRAPH, place, "no parameter gets a gradient: the loss has none", _CUT_FIX)


def _leads_to(tensor: Tensor, parameter: Tensor) -> bool:
    todo, seen = [tensor.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if getattr(node, "variable", None) is parameter:
            return True
        seen.add(node)
        todo += [following for following, _ in node.next_functions]
    return False


def _whole(name: str, unused: list[str], trainable: dict[str, nn.Parameter]) -> str:
    """The largest part of the model with this parameter of which no parameter is used, or the parameter itself."""
    path = name.split(".")
    for depth in range(1, len(path)):
        part = ".".join(path[:depth])
        if all(other in unused for other in trainable if other.startswith(f"{part}.")):
            return part
    return name


def _made(model: nn.Module, name: str) -> Place | None:
    """Where a part of the model, or a parameter, is made."""
    owner, _, last = name.rpartition(".")
    around = model.get_submodule(owner)
    part = getattr(around, last)
    if isinstance(part, nn.Module):
        return blame.layer(model, part)
    return source.assignment(around, last) or blame.layer(model, around)


def _optimizer(subject: Subject) -> Place | None:
    method = type(subject.model).configure_optimizers
    place, call = blame.optimizer(subject)
    chosen = call is not None and "parameters(" in ast.unparse(call)  # if not there, then before
    return (None if chosen else source.first_call([method], "named_parameters", "parameters")) or place


def _by_place(places: dict[str, Place | None]) -> dict[Place | None, list[str]]:
    grouped: dict[Place | None, list[str]] = {}
    for name, place in places.items():
        grouped.setdefault(place, []).append(name)
    return grouped


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
