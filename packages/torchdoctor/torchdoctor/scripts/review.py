"""Reviews a held script by running the probes on a LightningModule that replays its step."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from torchdoctor.advice.gains import add_gains
from torchdoctor.evidence import failure
from torchdoctor.evidence.overview import describe, name_of_model
from torchdoctor.findings import RUN, Finding
from torchdoctor.probes.evaluation.eval_randomness import SAME_TWICE
from torchdoctor.probes.execution.device import DEVICE_UNSAFE_TENSOR
from torchdoctor.review import add_results, describe_errors, notes_of, run_probes
from torchdoctor.running import sandbox
from torchdoctor.running.machine import load_factor
from torchdoctor.running.opening import open_subject
from torchdoctor.running.subject import NUM_TRAIN, NUM_VAL, Subject
from torchdoctor.running.training import parameters_of
from torchdoctor.running.unchanged import modes_restored, unchanged
from torchdoctor.scripts import hold
from torchdoctor.scripts.batches import batches_of
from torchdoctor.scripts.choice import choose_probes
from torchdoctor.scripts.devices import models_left_on_cpu
from torchdoctor.scripts.findings import of_script
from torchdoctor.scripts.folder import is_forbidden
from torchdoctor.scripts.hold import HeldScript
from torchdoctor.scripts.module import Script, find_parts
from torchdoctor.scripts.notes import Loading
from torchdoctor.scripts.silence import silenced
from torchdoctor.scripts.step import Step
from torchdoctor.scripts.unit import Unit, make_unit
from torchdoctor.scripts.validation import (
    ValidationWatch,
    continue_in_fork,
    evaluates_training_data,
    in_training_mode,
)

_VALIDATION_S, _BATCHES = 8.0, 2  # for a script to reach its validation, if idle; of each loader on the way
_VALIDATED_S = 5.0  # for a validation without a loader, on an idle machine
_TRAINS = "the statement that evaluates trains a model, too"
_PROBE_SHARE = 0.3  # of the time, for one probe


@dataclass
class Request:
    """The settings of a script's review.

    Args:
        script: the file, in the copy of its folder.
        arguments: of the script.
        answer: the file to write, as JSON.
        ids: of the defects to look for.
        limit_s: seconds for everything.
        start: by `time.monotonic`.
    """

    script: Path
    arguments: list[str]
    answer: Path
    ids: frozenset[str]
    limit_s: float
    start: float = field(default_factory=time.monotonic)

    def finish(self, content: dict[str, Any]) -> NoReturn:
        """Writes the answer and ends the process."""
        self.answer.write_text(json.dumps(content), encoding="utf-8")
        os._exit(0)


def review_held(request: Request) -> NoReturn:
    """Runs a script to its first `backward`, reviews it there, writes the answer and ends the process."""
    process = os.getpid()

    def look(held: HeldScript) -> None:
        try:
            _look(held, request)
        except Exception as error:  # of the step's replay: the rehearsal still tells what it saw
            request.finish({"notes": [f"the step: {sandbox.describe(error)}"]})

    try:
        hold.run(request.script, request.arguments, look)
        end: dict[str, Any] = {"exit": 0}
    except SystemExit as stop:
        end = {"exit": stop.code if isinstance(stop.code, int | None) else 1}
    except BaseException as error:  # of the script
        crash = failure.as_finding(error).as_dict() | {"probe": "start"}
        end = {"forbidden" if is_forbidden(error) else "crash": crash}
    if os.getpid() == process:  # not in a copy, which goes on after the review
        request.finish(end)
    os._exit(0)


def _look(held: HeldScript, request: Request) -> None:
    """Reviews the script at its validation, which a fork runs on to, or else here; returns in the fork only."""
    unit = make_unit(held.spot)
    step = Step(unit, held.leaves)
    parts = find_parts(unit, [*held.leaves, *parameters_of(step.optimizers)])
    batches = batches_of(unit, NUM_TRAIN, lambda: step.losses({}, 0))
    reached, later, contexts = request.answer.with_name("reached"), request.answer.with_name("later"), ExitStack()
    passed: list[DataLoader] = []  # evaluations of the training data
    contexts.enter_context(isolate_rng(include_cuda=False))
    for part in parts.values():
        contexts.enter_context(unchanged(part))

    def review(val_unit: Unit | None = None, mode: Finding | None = None) -> NoReturn:
        with torch.inference_mode(False), torch.enable_grad():
            contexts.close()
            answer = _review(parts, step, batches, val_unit, request)
            if mode is not None:
                answer["findings"].append(mode.as_dict() | {"shown_by": RUN._asdict(), "probe": "validation"})
                answer["checked"] = [text for text in answer["checked"] if text != SAME_TWICE]
            request.finish(answer)

    def review_validated(val_unit: Unit, model: nn.Module) -> None:
        if any(loader in passed for loader in val_unit.loaders):
            return
        reached.touch()
        if evaluates_training_data(val_unit, unit):
            # a copy, to where others are evaluated
            if passed or continue_in_fork(later, _VALIDATION_S * load_factor()):
                passed.extend(val_unit.loaders)
                return
            if request.answer.exists():
                os._exit(0)
        later.touch()
        name = next(name for name, part in parts.items() if part is model)
        review(val_unit, in_training_mode(step, val_unit, model, name))

    watch = ValidationWatch(held, unit, list(parts.values()), review_validated)
    if continue_in_fork(reached, _VALIDATION_S * load_factor()):
        contexts.enter_context(mock.patch.object(Loading, "longest", _BATCHES))
        contexts.enter_context(silenced(step.things, step.skip, lambda _: None, keeps_modes=False))
        watch.__enter__()
    elif request.answer.exists():  # of the copy
        os._exit(0)
    else:
        review()


def _review(
    parts: dict[str, nn.Module], step: Step, batches: Any, val_unit: Unit | None, request: Request
) -> dict[str, Any]:
    """Runs the probes on a script's step and returns the fields of a Report."""
    answer: dict[str, Any] = {"findings": [], "checked": [], "notes": [], "looked_for": [], "ruled_out": []}
    with _evaluating(parts):
        val_batches, unvalidated = _val_batches(step, val_unit)
    has_batches = batches != []
    if not has_batches:
        answer["notes"].append("what needs a batch: the step takes no tensors from a loader or a variable")
    if val_batches == []:
        answer["notes"].append(f"validation: {unvalidated}")
    known, living = (set(map(id, parameters_of(some))) for some in (step.optimizers, step.living_optimizers))
    if living - known:
        answer["notes"].append("what other optimizers train: they have no turn in the step that is reviewed")

    findings: list[Finding] = []

    def look(begun: Subject) -> None:
        todo, unfit = choose_probes(begun, step, val_unit, has_batches, request.ids)
        results = run_probes(todo, begun, request.start + request.limit_s, _PROBE_SHARE * request.limit_s)
        if len(todo) > 1:
            answer.update(overview=describe(begun), model=name_of_model(begun))
            add_gains(answer, begun, request.ids, request.start + request.limit_s)
        answer["notes"] += [*begun.limits, *unfit, *describe_errors(results), *notes_of(results, request.ids)]
        add_results(answer, todo, results, request.ids)
        if DEVICE_UNSAFE_TENSOR.id in request.ids:
            findings.extend(models_left_on_cpu(begun, model))

    model = Script(parts, step, batches if has_batches else [{}], val_unit, val_batches)
    open_subject(model, None, {}, look)
    answer["findings"] = of_script(answer["findings"], model, step)
    answer["findings"] += [finding.as_dict() | {"probe": "device"} for finding in findings]
    return answer


@contextmanager
def _evaluating(parts: dict[str, nn.Module]) -> Iterator[None]:
    """A context with networks in evaluation mode; a replayed validation does not switch modes."""
    modules = {module for part in parts.values() for module in part.modules()}
    with modes_restored(modules):
        for module in modules:
            module.training = False
        yield


def _val_batches(step: Step, unit: Unit | None) -> tuple[Any, str]:
    """The batches of a validation, and the reason if there are none; a validation must run fast to be replayed."""
    reason = "none was reached from this step in time, or it takes no batch"
    if unit is None:
        return [], reason
    ways = (None, unit.gradients), (0, unit.gradients), (None, True)  # for it may begin sums, or adapt a model first
    for turn, gradients in ways:
        unit.turn, unit.gradients = turn, gradients
        try:
            sandbox.call(lambda: _trial_run(step, unit), _VALIDATED_S * load_factor())
        except sandbox.SandboxError as error:
            reason = _TRAINS if _TRAINS in str(error) else str(error)
        else:
            return batches_of(unit, NUM_VAL, lambda: step.validate(unit, {})), reason
    return [], reason


def _trial_run(step: Step, unit: Unit) -> None:
    """Runs a validation once, and refuses one that trains a model."""

    def refuse(*_: Any) -> NoReturn:
        raise ValueError(_TRAINS)

    register_optimizer_step_pre_hook(refuse)
    step.validate(unit, unit.first_batch())
