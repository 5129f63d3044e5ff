"""Parameters without a gradient, and parameters without an optimizer."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import TRAINING, Defect, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.graph import leaves, nodes
from torchdoctor.running.record import Op
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.steps import is_scalar
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import weights_of

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
_EPOCHS, _MANY = 1000, 10**6  # of Lightning, where none are chosen; batches of an endless loader
_IDLE, _CUT, _UNUSED = "nothing takes the result, and", "used in the step, but", "the loss does not depend on them, and"
_OPTIONAL = "used in another branch alone, and"
_CUT_FIX = "# leave out what cuts the graph: detach, data, item, no_grad"
_CUTS = ("detach", "detach_", "data", "item", "tolist", "numpy", "tensor", "as_tensor", "from_numpy", "cpu")
_PROBLEMS = {
    _IDLE: (UNUSED_PARAMETER, "# use the result, or delete what makes it"),
    _CUT: (DETACHED_GRAPH, _CUT_FIX),
    _UNUSED: (UNUSED_PARAMETER, "# use the layer in forward, or delete it"),
    _OPTIONAL: (replace(UNUSED_PARAMETER, severity="advice"), "# make the layer only where it is chosen"),
}


def gradient_reach(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps and notes at each step of an optimizer which parameters have a gradient.

    What has one and is in no optimizer was forgotten. What has none is unused if no call takes it, or nothing takes
    what a call makes of it, or other values of it leave the loss as it is, and cut off otherwise. Five kinds are right
    as they are: what is frozen, what is not optimised and used without gradients, or with a part that is (a teacher),
    what begins as a copy of what is optimised (a target network), what changes all the same (a moving average), and
    what gets a gradient in the last epoch (an adversary that begins late). So is what is in evaluation mode and used
    without gradients. Advice is that of a network that comes trained, and of which a head alone is optimised.
    """
    if subject.model.automatic_optimization and (cut := _whole_cut(subject)) is not None:
        yield cut
        return
    notes = rehearsal_notes(subject, _Watch)
    if not notes.steps:
        return
    trainable = {name: p for name, p in notes.parameters.items() if p.requires_grad}
    forgotten = [n for n, p in trainable.items() if n in notes.reached and id(p) not in notes.optimised]
    if forgotten and (_are_copies(forgotten, notes) or _are_copied_later(subject, forgotten, notes)):
        forgotten = []
    if forgotten:
        message = f"{_listed(forgotten)}: a gradient arrives, but no optimizer has them"
        fix, values = "torch.optim.…(self.parameters(), …)", {"variant": "all"}
        if len(subject.trainer.optimizers) > 1:
            fix = "torch.optim.…([*one.parameters(), *other.parameters()], …)  # in the optimizer of their network"
            values = {}
        defect = PARAMETER_NOT_OPTIMIZED
        if not notes.trained.isdisjoint(name.rpartition(".")[0] for name in forgotten):
            defect = replace(defect, severity="advice", impact="Gradients are computed that nothing takes.")
            fix, values = "part.requires_grad_(False)  # it came trained, and stays as it is", {}
        yield Finding(defect, _optimizer(subject), message, fix, values)
    stuck: dict[tuple[str, Place | None], list[str]] = defaultdict(list)
    for name, problem, place in _untrained_parameters(subject, notes, trainable):
        stuck[problem, place].append(name)
    for (problem, place), names in stuck.items():
        defect, fix = _PROBLEMS[problem]
        yield Finding(defect, place, f"{_listed(names)}: {problem} no gradient arrives in {notes.steps} steps", fix)
    if not (forgotten or stuck):
        yield f"the backward pass reaches every trainable parameter ({len(trainable)} tensors)"


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.parameters = dict(subject.model.named_parameters())
        self.before = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.trained = _trained_norms(subject.model)
        self.uses = _uses(subject)
        self.reached: set[str] = set()
        self.optimised: set[int] = set()
        self.steps = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)  # Lightning goes backwards in the step itself

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        for group in optimizer.param_groups:
            if group["lr"] == 0:  # in a warm-up, where moving averages have nothing to follow
                group["lr"] = 1e-3
        self.optimised |= weights_of(optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.reached |= {name for name, p in self.parameters.items() if p.grad is not None}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for optimizer in trainer.optimizers:
            self.optimised |= weights_of(optimizer)


PROBE = Probe(
    look=gradient_reach,
    defects=(DETACHED_GRAPH, UNUSED_PARAMETER, PARAMETER_NOT_OPTIMIZED),
    needs=(Need.BATCHES, Need.WEIGHTS),
    watch=_Watch,
)


def _trained_norms(model: nn.Module) -> set[str]:
    """Norms that do not begin as torch makes them, with means or shifts of zero: their network comes trained."""
    batch_norm = nn.modules.batchnorm._BatchNorm
    norms = [item for item in model.named_modules() if isinstance(item[1], batch_norm | nn.LayerNorm | nn.GroupNorm)]
    values = {name: getattr(norm, "running_mean" if isinstance(norm, batch_norm) else "bias") for name, norm in norms}
    return {name for name, value in values.items() if value is not None and bool(value.any())}


def _uses(subject: Subject) -> dict[int, list[Op]]:
    """The calls of the first training or validation step that takes values of a parameter, by its identity."""
    uses: dict[int, list[Op]] = {}
    for step in [*subject.steps(2), *([subject.step(training=False)] if subject.validates else [])]:
        used = [op for op in step.record.ops if op.outputs or op.name in _CUTS]  # a device is no value
        computing = [op for op in used if op.name != "grad" and not op.takes_shape_alone]  # as clipping reads it
        taken = {id(leaf) for op in computing for leaf in op.inputs if isinstance(leaf, nn.Parameter)}
        uses |= dict.fromkeys(taken - uses.keys(), computing)
    return uses


def _are_copies(names: list[str], notes: _Watch) -> bool:
    """Whether these parameters begin as those of an optimised network: a target, which gets its weights from there."""
    if any(id(notes.parameters[name]) in notes.optimised for name in names):
        return False
    optimised = [notes.before[name] for name, p in notes.parameters.items() if id(p) in notes.optimised]
    values = [notes.before[name] for name in names]
    are_equal = all(any(torch.equal(value, other) for other in optimised) for value in values)
    return are_equal and any(value.dim() > 1 for value in values)


def _are_copied_later(subject: Subject, names: list[str], notes: _Watch) -> bool:
    """Whether weights have optimised twins, by name and shape, and the source copies one network into another."""
    twins = {(name.partition(".")[2], p.shape) for name, p in notes.parameters.items() if id(p) in notes.optimised}
    if any((name.partition(".")[2], notes.parameters[name].shape) not in twins for name in names):
        return False
    trees = [source.tree(file) for file in subject.files]
    loads = [call for tree in trees for call in source.calls(tree, "load_state_dict")]
    is_loaded = any(next(source.calls(item, "state_dict"), None) for call in loads for item in call.args)
    return is_loaded or any(next(source.calls(tree, "copy_", "lerp_"), None) for tree in trees)


def _untrained_parameters(
    subject: Subject, notes: _Watch, trainable: dict[str, nn.Parameter]
) -> Iterator[tuple[str, str, Place | None]]:
    """Parameters that no gradient reaches and nothing else changes: the name, the problem and its line."""
    untrained = {n: p for n, p in trainable.items() if n not in notes.reached and torch.equal(notes.before[n], p)}
    later = _reached_later(subject) if untrained else set()
    untrained = {n: p for n, p in untrained.items() if id(p) not in later and not _follows(n, notes, untrained)}
    idle = [name for name, parameter in untrained.items() if id(parameter) not in notes.uses]
    parts: dict[str, list[str]] = defaultdict(list)
    for name in idle:
        parts[name.partition(".")[0]].append(name)
    unused = [name for names in parts.values() if not _are_copies(names, notes) for name in names]  # of what comes late
    for name, parameter in untrained.items():
        if name in idle or id(parameter) not in notes.optimised:
            continue
        calls = [op for op in notes.uses[id(parameter)] if any(_leads_to(leaf, parameter) for leaf in op.inputs)]
        owner = subject.model.get_submodule(name.rpartition(".")[0])
        if not owner.training and not any(op.grad for op in calls):
            continue
        cuts = [op for op in calls if not op.grad] or [op for op in calls if op.name in _CUTS]
        cuts = cuts or [op for op in calls if not any(out.requires_grad for out in op.outputs)]
        if not cuts:
            yield name, _OPTIONAL if _is_read_in_branch(calls[0].place) else _IDLE, calls[0].place
        elif not _matters(subject, parameter):
            unused.append(name)
        elif not _has_path_with_graph(calls, parameter):
            yield name, _CUT, _line(cuts[0])
    for name in unused:
        if not _is_of_helper(name, notes):
            part = _largest_unused_module(name, unused, trainable)
            is_optional = name in idle and _is_optional(subject.model, part)
            yield name, _OPTIONAL if is_optional else _UNUSED, _creation_line(subject.model, part)


def _is_read_in_branch(place: Place | None) -> bool:
    """Whether what a line assigns is read in a branch of its function, which an option may choose."""
    function = source.function_at(place) if place is not None else None
    if place is None or function is None:
        return False
    names = source.assigned_at(place)
    branches = [node for node in ast.walk(function) if isinstance(node, ast.If)]
    parts = [part for branch in branches for part in (*branch.body, *branch.orelse)]
    return any(isinstance(node, ast.Name) and node.id in names for part in parts for node in ast.walk(part))


def _follows(name: str, notes: _Watch, untrained: dict[str, nn.Parameter]) -> bool:
    """Whether a parameter is in a part of the model without gradients that the steps change otherwise: an average."""
    for owner in _owners(name):
        part = {other for other in notes.parameters if other.startswith(f"{owner}.")}
        if part.isdisjoint(notes.reached):
            return any(
                not torch.equal(notes.before[other], notes.parameters[other]) for other in part - untrained.keys()
            )
    return False


def _owners(name: str) -> list[str]:
    """The parts of the model around a parameter, the largest first."""
    path = name.split(".")
    return [".".join(path[:depth]) for depth in range(1, len(path))]


def _reached_later(subject: Subject) -> set[int]:
    """Parameters that get a gradient in the training's last epoch, by identity: a part of a loss may begin late."""
    model, epoch = subject.model, (subject.settings.get("max_epochs") or _EPOCHS) - 1
    at_end = subject.at(epoch, epoch * int(min(subject.trainer.num_training_batches, _MANY)))
    reached: set[int] = set()
    with subject.unchanged(), subject.not_optimized(), at_end, suppress(Exception):
        model.on_train_epoch_start()  # may raise whatever it likes, as a step may, after so many epochs
        for index, batch in enumerate(subject.batches[:2]):
            loss = subject.train(batch, index)
            if model.automatic_optimization and loss is not None:
                loss.backward()
            reached |= {id(parameter) for parameter in model.parameters() if parameter.grad is not None}
    return reached


def _is_of_helper(name: str, notes: _Watch) -> bool:
    """Whether a parameter is in a part of the model that no optimizer has, and of which the steps use another part."""
    for owner in _owners(name):
        part = [p for other, p in notes.parameters.items() if other.startswith(f"{owner}.")]
        if notes.optimised.isdisjoint(map(id, part)):
            return not notes.uses.keys().isdisjoint(map(id, part))
    return False


@cache
def _leaf_tensors(node: Any) -> set[int]:
    return {id(leaf) for leaf in leaves(nodes(node))}


def _leads_to(tensor: Tensor, parameter: nn.Parameter) -> bool:
    """Whether a tensor is a parameter, or has a graph that leads to it."""
    return tensor is parameter or id(parameter) in _leaf_tensors(tensor.grad_fn)


def _has_path_with_graph(calls: list[Op], parameter: nn.Parameter) -> bool:
    """Whether what is cut off is also used with its graph: then there was nothing to learn in these steps."""
    cut = {id(leaf) for op in calls if op.name in _CUTS for leaf in op.inputs if _leads_to(leaf, parameter)}
    others = [op for op in calls if op.name not in _CUTS and not cut.isdisjoint(map(id, op.inputs))]
    return any(out.requires_grad for op in others for out in op.outputs)


def _matters(subject: Subject, parameter: nn.Parameter) -> bool:
    """Whether validation takes a parameter, or the loss of a step changes with it or cannot be compared."""
    if subject.validates and subject.attempt(training=False).record.takers(parameter):
        return True
    results = []
    change = torch.randn_like(parameter)  # not by the same amount everywhere, which a softmax takes out
    for share in (0.0, 1.0):
        with subject.unchanged(), subject.not_trained() as losses:
            parameter.data += share * change
            loss = subject.record(subject.batches[0]).loss
            results.append(losses or [loss])
    pairs = zip(*results, strict=False)
    return any(before is None or after is None or not torch.equal(before, after) for before, after in pairs)


def _line(cut: Op) -> Place | None:
    """The line of a call that gives on values alone, or of what turns gradients off around it."""
    return (None if cut.grad else source.without_gradients(cut.places)) or cut.place


def _whole_cut(subject: Subject) -> Finding | None:
    """A finding if there is no loss, or it has no gradient: at the last call that takes one with, and gives none."""
    step = subject.step()
    record, loss = step.record, step.loss
    scalars = [op for op in record.ops if is_scalar(op.out)]
    if loss is None and any(record.named("backward")):  # by itself; Lightning has nothing left to do
        return None
    if loss is None and scalars and all(other.loss is None for other in subject.steps()):
        message = "training_step returns no loss: Lightning skips the backward pass and the optimizer's step"
        return Finding(DETACHED_GRAPH, source.definition(type(subject.model).training_step), message, "return loss")
    if loss is None or loss.requires_grad:
        return None
    cuts = [
        op
        for op in record.ops
        if any(leaf.requires_grad for leaf in op.inputs) and not any(out.requires_grad for out in op.outputs)
    ]
    kin = record.ancestors(loss)
    cuts_before_loss = [op for op in cuts if any(id(out) in kin for out in op.outputs)]
    cuts_before_loss = cuts_before_loss or [op for op in cuts if op.name in _CUTS]
    place = _line(cuts_before_loss[-1]) if cuts_before_loss else source.definition(type(subject.model).training_step)
    return Finding(DETACHED_GRAPH, place, "no parameter gets a gradient: the loss has none", _CUT_FIX)


def _largest_unused_module(name: str, unused: list[str], trainable: dict[str, nn.Parameter]) -> str:
    """The largest part of the model with this parameter of which no parameter is used, or the parameter itself."""
    is_unused = (part for part in _owners(name) if all(n in unused for n in trainable if n.startswith(f"{part}.")))
    return next(is_unused, name)


def _is_optional(model: nn.Module, name: str) -> bool:
    """Whether a branch of a method takes a part of the model, which an option may choose."""
    owner, _, last = name.rpartition(".")
    taken = [
        place
        for place, node in source.in_methods(model.get_submodule(owner))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{last}"
    ]
    return any(source.around(place, ast.If, ast.IfExp, ast.Match) for place in taken)


def _creation_line(model: nn.Module, name: str) -> Place | None:
    """Where a part of the model, or a parameter, is made."""
    owner, _, last = name.rpartition(".")
    around = model.get_submodule(owner)
    part = getattr(around, last)
    if isinstance(part, nn.Module):
        return origins.layer(model, part)
    return source.assignment(around, last) or origins.layer(model, around)


def _optimizer(subject: Subject) -> Place | None:
    method = type(subject.model).configure_optimizers
    place, call = origins.optimizer(subject)
    chosen = call is not None and "parameters(" in ast.unparse(call)  # if not there, then before
    return (None if chosen else source.first_call([method], "named_parameters", "parameters")) or place


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
