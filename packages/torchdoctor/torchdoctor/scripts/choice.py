"""Which probes fit a script's step and its batches."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchdoctor import sandbox
from torchdoctor.dependence import few
from torchdoctor.findings import Finding, NotLookedAt
from torchdoctor.held import held
from torchdoctor.record import tensors
from torchdoctor.registry import Probe, all_probes
from torchdoctor.scripts import notes
from torchdoctor.scripts.step import Step
from torchdoctor.scripts.unit import Unit
from torchdoctor.subject import Subject

_OTHERWISE = (  # the rehearsal looks in place of the first eight; the others are about Lightning
    *("zero_grad", "clipping", "kept_weights", "recreated_optimizers", "schedule", "modes", "retained", "run"),
    *("metrics", "batch_means", "batch_scores", "scalar_loss", "accumulation"),
)
_OF_ANY = ("adam_l2", "registration", "repeated_layers", "unsafe_load")  # need no batch
_OF_ONE_LOSS = ("supervision",)  # takes losses apart after the step: later ones may change what earlier ones need
_OF_SAMPLES = ("batch_mixing", "batch_loop", "divided_mean", "padding")
_OF_VAL_SAMPLES = ("batch_mixing", "padding")  # which look at the validation, if there is one
_OF_ANY_SIZE = (*_OF_SAMPLES, "input_independent", "overfit")
_OF_WEIGHTS = ("gradient_reach", "gradients", "learning_rate", "overfit", "registration")
_OF_DENSE = ("device", "finite", "overfit")
_CUT_S = 5.0


def choose_probes(
    begun: Subject, step: Step, val_unit: Unit | None, has_batches: bool, ids: frozenset[str]
) -> tuple[dict[str, Probe], list[str]]:
    """The probes by name, and lines that say why others are left out.

    Args:
        begun: what they will look at.
        step: of the script.
        val_unit: of its validation.
        has_batches: whether the step takes any.
        ids: of the defects to look for.
    """
    todo = {name: probe for name, probe in all_probes().items() if probe.ids & ids and name not in _OTHERWISE}
    todo = {name: probe for name, probe in todo.items() if has_batches or name in _OF_ANY}
    todo = {name: probe for name, probe in todo.items() if step.num_losses == 1 or name not in _OF_ONE_LOSS}
    lines = []
    for names, reason in _unfit(begun, step, val_unit):
        left_out = [name for name in names if todo.pop(name, None) is not None]
        lines += [f"{', '.join(left_out)}: {reason}"] if left_out else []
    if "registration" in todo:
        todo["registration"] = replace(todo["registration"], look=_also_at_holders(todo["registration"].look))
    return todo, lines


def _unfit(begun: Subject, step: Step, val_unit: Unit | None) -> Iterator[tuple[tuple[str, ...], str]]:
    """Probes that do not fit the batches, and why."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in step.optimizers):
        yield ("learning_rate",), "LBFGS searches along a line"
    if not any(True for _ in begun.model.parameters()):
        yield _OF_WEIGHTS, "no module holds the weights"
    reason = "goes through no DataLoader itself, so that the dimension of the samples is unknown"  # time may come first
    if not step.unit.loaders:
        yield _OF_SAMPLES, f"the loop of the step {reason}"
    if val_unit is not None and begun.validates and not val_unit.loaders:
        yield _OF_VAL_SAMPLES, f"the validation {reason}"
    if any(leaf.is_sparse for leaf in tensors(begun.batches)):
        yield _OF_DENSE, "the batches are sparse"
    smaller = few(begun.batches[0])
    if smaller is None or not tensors(smaller):
        return
    try:
        sandbox.call(lambda: bool(begun.train(smaller)), _CUT_S)
    except sandbox.SandboxError:
        yield _OF_ANY_SIZE, "the step takes no smaller batches"


def _also_at_holders(
    look: Callable[[Subject], Iterable[Finding | str | NotLookedAt]],
) -> Callable[[Subject], Iterator[Finding | str | NotLookedAt]]:
    """Looks also at modules that hold the script's models in plain lists."""

    def look_at_all(begun: Subject) -> Iterator[Finding | str | NotLookedAt]:
        weights = {id(weight) for weight in begun.model.parameters()}
        holders = [module for module in notes.living(nn.Module) if module is not begun.model]
        begun.attempt()  # recorded once for all of them
        for model in (begun.model, *(module for module in holders if _holds(module, weights))):
            part: Any = copy(begun)
            part.model = model
            yield from look(part)

    return look_at_all


def _holds(module: nn.Module, weights: set[int]) -> bool:
    containers = [value for value in vars(module).values() if isinstance(value, list | tuple | dict)]
    return any(id(leaf) in weights for leaf in held(containers))
