"""Gradients that vanish or blow up between the last layers and the first."""

import math
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from playbook.doctor import blame, sandbox, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.initial import initialisation
from playbook.doctor.record import tensors
from playbook.doctor.subject import Subject
from playbook.doctor.training import train

_SHOWN_BY = Evidence("measured", "the gradients were measured layer by layer over several batches")
VANISHING_GRADIENT = Defect(
    "vanishing-gradient",
    "warning",
    "The first layers hardly learn.",
    explains=("loss-not-decreasing",),
    shown_by=_SHOWN_BY,
)
EXPLODING_GRADIENT = Defect(
    "exploding-gradient",
    "warning",
    "A few steps throw the weights far away.",
    shown_by=_SHOWN_BY,
)
DEFECTS = (VANISHING_GRADIENT, EXPLODING_GRADIENT)

_VANISHED = 1e-5
_EXPLODED = 1e3
_DEPTH = 4
_STEPS = 30
_STRETCH, _TURNS = 2.5, 10  # what weights do to a vector's length; of one layer in a step
_SQUASHING = (nn.Sigmoid, nn.Tanh, nn.Softsign, nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid)
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_gradients", "clip_grads_with_norm_")


def gradients(subject: Subject) -> Iterator[Finding | str]:
    """Measures the gradient of the loss at every layer's output, in the order of the calls.

    Vanishing: its norm at the first layer is below 1e-5 of that at the last, and still so after 30 steps: what starts
    near zero has grown by then if the optimizer copes with it. Cells with gates count by the step that reaches them
    best. Clean programs stay above 7e-3.
    Exploding: the gradients' norm over the parameters exceeds 1000, and 100 times the loss or the norm at the first
    layer exceeds 1000 times that at the last, with no clipping. A large sum as a loss is not enough. Clean programs
    stay below 12. Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks".
    The weights of each optimizer are measured on their own: players against each other have gradients of other sizes.
    """
    optimizers = subject.trainer.optimizers
    owned = [{id(p) for group in optimizer.param_groups for p in group["params"]} for optimizer in optimizers]
    seen = [item for weights in (owned if len(owned) > 1 else [None]) for item in _measured(subject, weights)]
    yield from [item for item in seen if isinstance(item, Finding)][:1] or seen[:1]


def _measured(subject: Subject, weights: set[int] | None) -> Iterator[Finding | str]:
    """What the gradients of weights say, by their identity; None for all."""
    at_start = [_look(subject, batch, weights) for batch in subject.batches[:3]]
    at_start = [seen for seen in at_start if len(seen.norms) > 1 and math.isfinite(seen.total)]
    if not at_start:
        return
    ratio, total = median(seen.ratio for seen in at_start), median(seen.total for seen in at_start)
    scale = median(1 + seen.loss for seen in at_start)
    first, last = at_start[0].layers[0], at_start[0].layers[-1]
    deep = len(at_start[0].layers) >= _DEPTH
    if total > _EXPLODED and (total > 100 * scale or (deep and ratio > _EXPLODED)) and not _clips(subject):
        message = f"the gradients' norm is {total:.2g} over a loss of {scale - 1:.2g}, and nothing clips it"
        if deep:
            message += f"; at {first} it is {ratio:.2g} times that at {last}"
        yield Finding(
            EXPLODING_GRADIENT,
            _wild(subject),
            message,
            "pl.Trainer(gradient_clip_val=1.0)  # and nn.init.xavier_normal_(weight)",
        )
    elif deep and 0 < ratio < _VANISHED and _stays(subject, weights):
        message = f"the gradient at the output of {first} is {ratio:.1g} of that at {last}"
        message += f", {len(at_start[0].layers) - 1} layers later"
        yield Finding(VANISHING_GRADIENT, *_squashes(subject, message, first))
    else:
        yield f"the gradients' norm is {total:.2g}, and at the first layer {ratio:.1g} of that at the last"


class _Seen:
    """Norms of gradients in one step: at the outputs of layers with weights in the order of calls, and in all."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.layers: list[str] = []
        self.squares: list[float] = []
        self.loss = 0.0

    @property
    def ratio(self) -> float:
        """Of the first to the last."""
        return self.norms[0] / self.norms[-1] if self.norms[-1] > 0 else math.nan

    @property
    def total(self) -> float:
        """Over all parameters."""
        return math.sqrt(sum(self.squares))


def _look(subject: Subject, batch: Any, weights: set[int] | None) -> _Seen:
    seen, outputs = _Seen(), []
    chosen = [p for p in subject.model.parameters() if p.requires_grad and (weights is None or id(p) in weights)]
    counted = {id(parameter) for parameter in chosen}
    names = {module: name for name, module in subject.model.named_modules()}

    def called(module: nn.Module, _: Any, output: Any) -> None:
        own = [p for p in nn.Module.parameters(module, recurse=False) if p.dim() > 1 and id(p) in counted]
        found = [leaf for leaf in tensors(output) if leaf.requires_grad and leaf.is_floating_point()]
        if own and found and module in names:
            outputs.append((names[module] or type(module).__name__, norms_of(found)))

    def norms_of(leaves: list[Tensor]) -> list[float]:
        cell: list[float] = []

        def norm(grad: Tensor | None) -> None:
            if grad is not None:  # of a result that nobody uses, as the last cell of an LSTM
                cell.append(float(grad.detach().double().norm()))

        for leaf in leaves:  # recurrent layers give their results and their last state
            leaf.register_hook(norm)
        return cell

    squares: list[float] = []
    hooks = [nn.modules.module.register_module_forward_hook(called)]
    for parameter in chosen:
        hooks.append(parameter.register_hook(lambda grad: squares.append(float(grad.detach().double().square().sum()))))
    try:
        torch.manual_seed(0)
        loss = subject.train(batch)
        seen.loss = abs(float(loss.detach().sum())) if loss is not None else 0.0
        if subject.model.automatic_optimization and loss is not None and loss.requires_grad:
            loss.sum().backward()
    finally:
        for hook in hooks:
            hook.remove()
        for parameter in subject.model.parameters():
            parameter.grad = None
    reached = [(name, max(cell)) for name, cell in outputs if any(cell)]
    if any(isinstance(module, nn.LSTMCell | nn.GRUCell) for module in names):  # made to forget: the best of all steps
        most = {name: max(norm for own, norm in reached if own == name) for name, _ in reached}
        reached = list(most.items())
    seen.layers, seen.norms, seen.squares = [name for name, _ in reached], [norm for _, norm in reached], squares
    return seen


def _stays(subject: Subject, weights: set[int] | None) -> bool:
    """Whether the first layer's gradient is still as small after some steps; not if these take too long."""

    def later() -> float:
        has_trained = len(train(subject, _STEPS, 6.0)) == _STEPS
        return _look(subject, subject.batches[0], weights).ratio if has_trained else math.nan

    try:
        return 0 < sandbox.call(later, 18.0) < 10 * _VANISHED
    except sandbox.SandboxError:
        return False


def _clips(subject: Subject) -> bool:
    if subject.settings.get("gradient_clip_val") is not None:
        return True
    if type(subject.model).configure_gradient_clipping is not LightningModule.configure_gradient_clipping:
        return True
    bodies = [source.body(cls) for cls in source.classes_of(subject.model)]
    return any(True for found in bodies if found for _ in source.calls(found[1], *_CLIPPING))


def _wild(subject: Subject) -> Place | None:
    """The initialisation of the layer whose weights stretch a vector the most; a loop over layers that do not much."""
    worst, layer, name = 0.0, None, ""
    for module in subject.model.modules():
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.dim() < 2 or isinstance(module, nn.Embedding):
                continue
            gain = float(parameter.detach().std()) * math.sqrt(parameter[0].numel())
            gain *= 1 + isinstance(module, nn.RNNBase | nn.RNNCellBase)
            if gain > worst:
                worst, layer, name = gain, module, own
    looped = _looped(subject) if worst < _STRETCH else None
    if looped or layer is None:
        return looped
    is_own = source.definition(type(layer)) is not None
    return (source.assignment(layer, name) if is_own else None) or initialisation(subject.model, layer)


def _looped(subject: Subject) -> Place | None:
    """The line in a loop of the user's that calls the same layer many times."""
    record = subject.step().record
    counts = Counter(op.module for op in record.ops if op.module is not None and op.name == "linear")
    for module, count in counts.most_common(1):
        op = next(op for op in record.ops if op.module is module)
        inside = [place for place in op.places if source.is_in_loop(place)]
        return inside[0] if inside and count >= _TURNS else None
    return None


def _squashes(subject: Subject, message: str, first: str) -> tuple[Place | None, str, str]:
    """The line, the message and the fix: activations that saturate, or weights that shrink what passes."""
    record = subject.step().record
    squashing = [module for module in subject.model.modules() if isinstance(module, _SQUASHING)]
    small = [
        m for m in subject.model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd) and _gain(m) < 0.2
    ]
    if small:
        message += f"; weights shrink what passes to {_gain(small[0]):.2g}"
        return initialisation(subject.model, small[0]), message, "nn.init.kaiming_normal_(layer.weight)"
    fix = "nn.ReLU()  # or nn.GELU, with nn.LayerNorm and residual connections"
    if squashing:
        message += f"; {type(squashing[0]).__name__} passes a part of it in every layer"
        return blame.layer(subject.model, squashing[0]), message, fix
    ops = [op for op in record.named("sigmoid", "tanh", "softmax", "sigmoid_", "tanh_") if op.direct]
    if len(ops) >= _DEPTH - 1:
        return ops[0].place, message + f"; {ops[0].name} at every layer", fix
    module = dict(subject.model.named_modules()).get(first)
    place = blame.layer(subject.model, module) if module is not None else None
    return place, message, fix


def _gain(module: nn.Module) -> float:
    weight = next(nn.Module.parameters(module))
    return float(weight.detach().std()) * math.sqrt(weight[0].numel()) if weight.numel() > 1 else 1.0
