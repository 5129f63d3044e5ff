"""Chooses the probes that apply to a script's step and batches."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from torchdoctor.evidence.dependence import distinguishable_batch
from torchdoctor.findings import Finding, NotLookedAt
from torchdoctor.probe import Look, Need, Probe
from torchdoctor.registry import all_probes
from torchdoctor.running import sandbox
from torchdoctor.running.record import tensors
from torchdoctor.running.subject import Subject
from torchdoctor.running.unregistered import unregistered_tensors
from torchdoctor.scripts import notes
from torchdoctor.scripts.step import Step
from torchdoctor.scripts.unit import Unit

_CUT_S = 5.0


def choose_probes(
    begun: Subject, step: Step, val_unit: Unit | None, has_batches: bool, ids: frozenset[str]
) -> tuple[dict[str, Probe], list[str]]:
    """The applicable probes by name, and notes on why others are left out.

    Args:
        begun: what they will look at.
        step: of the script.
        val_unit: of its validation.
        has_batches: whether the step takes any.
        ids: of the defects to look for.
    """
    lacking = {Need.LIGHTNING} | ({Need.BATCHES} if not has_batches else set())
    lacking |= {Need.ONE_LOSS} if step.num_losses != 1 else set()
    todo = {name: probe for name, probe in all_probes().items() if probe.ids & ids and not lacking & set(probe.needs)}
    lines = []
    for need, reason in _lacks(begun, step, val_unit):
        left_out = [name for name, probe in todo.items() if need in probe.needs]
        lines += [f"{', '.join(left_out)}: {reason}"] if left_out else []
        todo = {name: probe for name, probe in todo.items() if name not in left_out}
    for name, probe in todo.items():
        if probe.of_holders:
            todo[name] = replace(probe, look=_also_at_holders(probe.look))
    return todo, lines


def _lacks(begun: Subject, step: Step, val_unit: Unit | None) -> Iterator[tuple[Need, str]]:
    """The needs of probes that the step does not meet, with reasons."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in step.optimizers):
        yield Need.STEPS, "LBFGS searches along a line"
    if not any(True for _ in begun.model.parameters()):
        yield Need.WEIGHTS, "no module holds the weights"
    reason = "goes through no DataLoader itself, so that the dimension of the samples is unknown"  # time may come first
    if not step.unit.loaders:
        yield Need.SAMPLES, f"the loop of the step {reason}"
    if val_unit is not None and begun.validates and not val_unit.loaders:
        yield Need.VAL_SAMPLES, f"the validation {reason}"
    if any(leaf.is_sparse for leaf in tensors(begun.batches)):
        yield Need.DENSE, "the batches are sparse"
    smaller = distinguishable_batch(begun.batches[0])
    if smaller is None or not tensors(smaller):
        return
    try:
        sandbox.call(lambda: bool(begun.train(smaller)), _CUT_S)
    except sandbox.SandboxError:
        yield Need.FEWER_SAMPLES, "the step takes no smaller batches"


def _also_at_holders(look: Look) -> Look:
    """Extends a probe to modules that hold the script's models in plain lists."""

    def look_at_all(begun: Subject) -> Iterator[Finding | str | NotLookedAt]:
        weights = {id(weight) for weight in begun.model.parameters()}
        holders = [module for module in notes.living_objects(nn.Module) if module is not begun.model]
        begun.attempt()  # recorded once for all of them
        for model in (begun.model, *(module for module in holders if _holds(module, weights))):
            part: Any = copy(begun)
            part.model = model
            yield from look(part)

    return look_at_all


def _holds(module: nn.Module, weights: set[int]) -> bool:
    containers = [value for value in vars(module).values() if isinstance(value, list | tuple | dict)]
    return any(id(leaf) in weights for leaf in unregistered_tensors(containers))
