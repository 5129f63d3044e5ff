"""Vanishing and exploding gradients."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.initial_values import initialisation_line, rms_gain
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running import sandbox
from torchdoctor.running.graph import leaves, nodes
from torchdoctor.running.record import tensors
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import noting_losses, train, weights_of

_SHOWN_BY = Evidence("measured", "the gradients were measured layer by layer over several batches")
VANISHING_GRADIENT = Defect(
    "vanishing-gradient",
    "warning",
    "The first layers hardly learn.",
    explains=("loss-not-decreasing",),
    shown_by=_SHOWN_BY,
)
EXPLODING_GRADIENT = Defect(
    "exploding-gradient", "warning", "A few steps throw the weights far away.", shown_by=_SHOWN_BY
)

_DEPTH = 4  # layers, at least
_STEPS, _LAST, _LOWER = 30, 5, 0.8  # of a training; of its steps at both ends; the later loss over the earlier one
_ADAPTIVE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop)
_STRETCH, _SHRINK, _TURNS = 2.5, 0.2, 10  # what weights do to a vector's length; calls of one layer in a step
_SQUASHING = ("sigmoid", "sigmoid_", "tanh", "tanh_", "softmax", "softsign", "hardsigmoid", "hardtanh", "logsigmoid")
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_gradients", "clip_grads_with_norm_")


def gradients(subject: Subject, vanished: float = 1e-5, exploded: float = 1e3) -> Iterator[Finding | str]:
    """Measures the gradient of the loss at the output of every layer with weights, in the order of the calls.

    Vanishing: its norm at the first layer is below 1e-5 of that at the last, and still so after 30 steps: what starts
    near zero has grown by then if the optimizer copes with it. With gates, layers count by the step that reaches them
    best. Clean programs stay above 7e-3.
    Exploding: the gradients' norm over the weights exceeds 1000, and 100 times the loss or the norm at the first layer
    exceeds 1000 times that at the last, with no clipping. A large sum as a loss is not enough. Clean programs stay
    below 12. It is advice where Adam and its like, which divide by the gradient's size, lower the loss by a fifth in 30
    steps. Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks".
    Where a model is called several times with data, the pass that has the largest gradients tells.
    The weights of each optimizer are measured on their own: players against each other have gradients of other sizes.

    Args:
        subject: the training that has just begun.
        vanished: ratio of the gradient's norm at the first layer to that at the last.
        exploded: norm over the weights, and the same ratio.
    """
    groups = [weights_of(optimizer) for optimizer in subject.trainer.optimizers]
    if len(groups) < 2:
        groups = [{id(weight) for weight in subject.model.parameters()}]
    results = [result for weights in groups if (result := _judge(subject, weights, vanished, exploded))]
    yield from sorted(results, key=lambda result: isinstance(result, str))[:1]


PROBE = Probe(look=gradients, defects=(VANISHING_GRADIENT, EXPLODING_GRADIENT), needs=(Need.BATCHES, Need.WEIGHTS))


def _judge(subject: Subject, weights: set[int], vanished: float, exploded: float) -> Finding | str | None:
    """What the gradients of these weights, given by identity, say."""
    at_start = [_norms(subject, batch, weights) for batch in subject.batches[:3]]
    at_start = [norms for norms in at_start if len(norms.layers) > 1 and math.isfinite(norms.total)]
    if not at_start:
        return None
    ratio, total, loss = (median(getattr(norms, name) for norms in at_start) for name in ("ratio", "total", "loss"))
    (first, _), (last, _) = at_start[0].layers[0], at_start[0].layers[-1]
    depth = len(at_start[0].layers)
    is_deep = depth >= _DEPTH
    if total > exploded and (total > 100 * (1 + loss) or (is_deep and ratio > exploded)) and not _clips(subject):
        message = f"the gradients' norm is {total:.2g} over a loss of {loss:.2g}, and nothing clips it"
        if is_deep:
            message += f"; at {first} it is {ratio:.2g} times that at {last}"
        fix = "pl.Trainer(gradient_clip_val=1.0)  # and nn.init.xavier_normal_(weight)"
        defect = EXPLODING_GRADIENT
        if _learns(subject):
            defect = replace(defect, severity="advice", impact="Steps that are no multiple of the gradient hide it.")
            message += f"; {type(subject.trainer.optimizers[0]).__name__} trains all the same"
        return Finding(defect, _amplifying_line(subject), message, fix)
    if is_deep and 0 < ratio < vanished and _is_lasting(subject, weights, vanished):
        message = f"the gradient at the output of {first} is {ratio:.1g} of that at {last}, {depth - 1} layers later"
        place, reason, fix = _attenuation(subject, first)
        return Finding(VANISHING_GRADIENT, place, message + reason, fix)
    return f"the gradients' norm is {total:.2g}"


@dataclass
class _Norms:
    """Norms of a step's gradients: at the outputs of layers, by their names in the order of calls, and over weights."""

    layers: list[tuple[str, float]]
    total: float
    loss: float

    @property
    def ratio(self) -> float:
        """Of the first layer to the last."""
        return self.layers[0][1] / self.layers[-1][1] if self.layers else math.nan


def _norms(subject: Subject, batch: Any, weights: set[int]) -> _Norms:
    names = {module: name or type(module).__name__ for name, module in subject.model.named_modules()}
    passes: list[list[tuple[str, list[float]]]] = [[]]
    of_weights: list[float] = []
    within: list[nn.Module] = []

    def note(norms: list[float], grad: Tensor | None) -> None:
        if grad is not None:  # of a result that nobody uses, as the last cell of an LSTM
            norms.append(float(grad.double().norm()))

    def enter(module: nn.Module, arguments: Any) -> None:
        if not within and not any(leaf.requires_grad for leaf in tensors(arguments)):
            passes.append([])
        within.append(module)

    def note_call(module: nn.Module, _: Any, output: Any) -> None:
        within.pop()
        own = [p for p in nn.Module.parameters(module, recurse=False) if p.dim() > 1 and id(p) in weights]
        if any(weight.requires_grad for weight in own) and module in names:
            passes[-1].append((names[module], []))
            for leaf in tensors(output):
                if leaf.requires_grad and leaf.is_floating_point():
                    leaf.register_hook(partial(note, passes[-1][-1][1]))

    chosen = [p for p in subject.model.parameters() if p.requires_grad and id(p) in weights]
    hooks: list[Any] = [parameter.register_hook(partial(note, of_weights)) for parameter in chosen]
    register = nn.modules.module
    hooks += [register.register_module_forward_pre_hook(enter), register.register_module_forward_hook(note_call)]
    torch.manual_seed(0)
    loss = _backward_step(subject, batch, weights)
    for hook in hooks:
        hook.remove()
    subject.model.zero_grad()
    layers = max(([(name, max(norms)) for name, norms in each if any(norms)] for each in passes), key=_size)
    if _has_gates(subject):  # made to forget: the best of all steps
        layers = list({name: max(norm for own, norm in layers if own == name) for name, _ in layers}.items())
    return _Norms(layers, math.hypot(*of_weights), loss)


def _has_gates(subject: Subject) -> bool:
    """Whether there are cells with gates, of torch or by hand: products with results of sigmoid."""
    record = subject.attempt().record
    gates = [taker for op in record.named("sigmoid", "sigmoid_") for taker in record.takers(op.out)]
    is_by_hand = any(taker.name in ("mul", "__mul__", "__rmul__") for taker in gates)
    return is_by_hand or any(isinstance(module, nn.LSTMCell | nn.GRUCell) for module in subject.model.modules())


def _backward_step(subject: Subject, batch: Any, weights: set[int]) -> float:
    """Runs a step with its backward passes, and returns the largest loss that these weights have a part in."""
    losses = [0.0]

    def note(loss: Tensor) -> None:
        if any(id(leaf) in weights for leaf in leaves(nodes(loss.grad_fn))):
            losses.append(abs(float(loss.detach().sum())))

    with noting_losses(subject.model, note), subject.ending_backwards():
        loss = subject.train(batch)
    if subject.model.automatic_optimization and loss is not None and loss.requires_grad:
        losses.append(abs(float(loss.detach().sum())))
        loss.sum().backward()
    return max(losses)


def _size(layers: list[tuple[str, float]]) -> float:
    return sum(norm for _, norm in layers)


def _is_lasting(subject: Subject, weights: set[int], vanished: float) -> bool:
    """Whether the first gradient is still as small after some steps; not if these take too long."""

    def later() -> float:
        if len(train(subject, _STEPS, 6.0)) < _STEPS:
            return math.nan
        return _norms(subject, subject.batches[0], weights).ratio

    return 0 < sandbox.attempt(later, 18.0, math.nan) < 10 * vanished


def _learns(subject: Subject) -> bool:
    """Whether optimizers whose steps do not grow with the gradient lower the loss by a fifth in some steps."""
    if not all(isinstance(each, _ADAPTIVE) for each in subject.trainer.optimizers):
        return False
    losses = sandbox.attempt(lambda: train(subject, _STEPS, 6.0), 18.0, [])
    known = [loss for loss in losses if loss is not None]
    return len(known) == _STEPS and sum(known[-_LAST:]) < _LOWER * sum(known[:_LAST])


def _clips(subject: Subject) -> bool:
    own_hook = type(subject.model).configure_gradient_clipping is not LightningModule.configure_gradient_clipping
    by_hand = source.first_call(source.classes_of(subject.model), *_CLIPPING)
    return own_hook or subject.settings.get("gradient_clip_val") is not None or by_hand is not None


def _amplifying_line(subject: Subject) -> Place | None:
    """A loop that calls one layer many times, or the initialisation of the weight that stretches a vector the most."""
    matrices = [
        (rms_gain(weight), module, name)
        for module in subject.model.modules()
        for name, weight in module.named_parameters(recurse=False)
        if weight.dim() > 1 and not isinstance(module, nn.Embedding)
    ]
    most, layer, name = max(matrices, key=lambda item: item[0], default=(0.0, subject.model, ""))
    looped = _repeated_layer_line(subject) if most < _STRETCH else None
    own = source.assignment(layer, name) if source.definition(type(layer)) is not None else None
    return looped or own or initialisation_line(subject.model, layer)


def _repeated_layer_line(subject: Subject) -> Place | None:
    """The line in a loop of the user's that calls the same layer many times."""
    layers = [op for op in subject.step().record.named("linear") if op.module is not None]
    for module, count in Counter(op.module for op in layers).most_common(1):
        places = next(op.places for op in layers if op.module is module)
        return next((place for place in places if count >= _TURNS and source.is_in_loop(place)), None)
    return None


def _attenuation(subject: Subject, first: str) -> tuple[Place | None, str, str]:
    """The line, the reason and the fix: weights that shrink what passes, or activations that saturate."""
    for module in subject.model.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and (factor := rms_gain(module.weight)) < _SHRINK:
            place = initialisation_line(subject.model, module)
            return place, f"; weights shrink what passes to {factor:.2g}", "nn.init.kaiming_normal_(layer.weight)"
    step = subject.step()
    squashing = [op for op in step.record.named(*_SQUASHING) if op.direct and step.is_from_data(op.inputs[0])]
    if len(squashing) >= _DEPTH - 1:
        op = squashing[0]
        fix = "nn.ReLU()  # or nn.GELU, with nn.LayerNorm and residual connections"
        return origins.called_layer_line(subject.model, op), f"; {op.name} passes a part of it in every layer", fix
    layer = dict(subject.model.named_modules()).get(first, subject.model)
    return origins.layer(subject.model, layer), "", "x = x + layer(norm(x))  # residual connections, with nn.LayerNorm"
