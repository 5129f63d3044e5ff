"""Reviews a held script: replays its step in a LightningModule, and lets the probes look at that."""

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from playbook.doctor import failure, sandbox, source
from playbook.doctor.blame import maker, option
from playbook.doctor.dependence import few
from playbook.doctor.findings import Finding, Place
from playbook.doctor.held import held
from playbook.doctor.machine import crowding
from playbook.doctor.opening import open_subject
from playbook.doctor.record import tensors
from playbook.doctor.registry import Probe, all_probes
from playbook.doctor.review import describe_errors, run_probes
from playbook.doctor.scripts import hold, notes
from playbook.doctor.scripts.batches import batches_of, events, val_batches_of
from playbook.doctor.scripts.folder import is_forbidden
from playbook.doctor.scripts.hold import Held
from playbook.doctor.scripts.module import Script, Step, ValidatedScript, find_parts, keep_weights, living_things
from playbook.doctor.scripts.notes import Backward, Loading
from playbook.doctor.scripts.silence import silenced
from playbook.doctor.scripts.unit import Unit, make_unit
from playbook.doctor.scripts.validation import ValidationWatch, go_on
from playbook.doctor.subject import NUM_VAL, Subject
from playbook.doctor.training import weights_of

ANSWER = "review.json"
VALIDATION_S = 8.0  # for a script to reach its validation, on an idle machine
_PROBE_SHARE = 0.3  # of the time, for one probe
_OTHERWISE = (  # the rehearsal looks in place of the first five; the others are about Lightning
    *("zero_grad", "schedule", "modes", "retained", "run"),
    *("metrics", "scalar_loss", "accumulation"),
)
_OF_ANY = ("adam_l2", "registration", "unsafe_load")  # need no batch
_OF_ONE_LOSS = ("supervision",)  # takes losses apart after the step: later ones may change what earlier ones need
_OF_SAMPLES = ("batch_mixing", "batch_loop", "padding")
_OF_ANY_SIZE = (*_OF_SAMPLES, "input_independent", "overfit")
_OF_WEIGHTS = ("gradient_reach", "gradients", "learning_rate", "overfit", "registration")
_CUT_S = 5.0
_VALIDATED_S = 5.0  # for a validation without a loader
_OF_DENSE = ("finite", "overfit")
_OF_OPTIMIZER = ("adam-l2", "learning-rate-too-high", "learning-rate-too-low", "parameter-not-optimized")
_OF_LOADER = {
    "train-not-shuffled": "shuffle",
    "norm-batch-size-one": "batch_size",
    "duplicate-worker-rng": "num_workers",
    "slow-loader": "num_workers",
}
_OF_LATER = {  # what the source says of a precision or an accelerator, if the script uses one
    "amp-unsafe": r"autocast",
    **dict.fromkeys(["device-unsafe-tensor", "host-sync"], r"cuda|device|xpu|accelerat|\bmps\b"),
}
_FACTORIES = ("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rand", "randn", "randint", "randperm")
_FACTORIES += ("tensor", "as_tensor", "from_numpy")


@dataclass
class Request:
    """What a review of a script is asked for.

    Args:
        script: the file, in the copy of its folder.
        arguments: of the script.
        scratch: for the review's own files.
        ids: of the defects to look for.
        limit_s: seconds for everything.
    """

    script: Path
    arguments: list[str]
    scratch: Path
    ids: frozenset[str]
    limit_s: float


def review_held(request: Request) -> NoReturn:
    """Runs a script until its first `backward`, reviews it there and writes the answer; does not return from there."""
    answer = request.scratch / ANSWER
    start = time.monotonic()
    is_copy = False

    def finish(content: dict[str, Any]) -> NoReturn:
        if not answer.exists():
            answer.write_text(json.dumps(content), encoding="utf-8")
        os._exit(0)

    def look(held: Held) -> None:
        nonlocal is_copy
        if is_copy:
            return
        deadline = start + request.limit_s
        try:
            is_copy = _look(held, request, deadline, finish)
        except Exception as error:  # of the step's replay: the rehearsal still tells what it saw
            finish({"findings": [], "checked": [], "looked_for": [], "notes": [f"the step: {sandbox.describe(error)}"]})

    try:
        hold.run(request.script, request.arguments, look)
    except SystemExit as stop:
        if not is_copy:
            finish({"exit": stop.code if isinstance(stop.code, int | None) else 1})
    except BaseException as error:  # of the script
        if not is_copy:
            crash = failure.as_finding(error).as_dict() | {"probe": "start"}
            finish({"forbidden" if is_forbidden(error) else "crash": crash})
    if not is_copy:
        finish({"exit": 0})
    os._exit(0)


def _look(held: Held, request: Request, deadline: float, finish: Callable[[dict[str, Any]], None]) -> bool:
    """Reviews, and ends the process; True in a copy of it, which lets the script go on."""
    unit = make_unit(held.spot)
    step = Step(unit, _events(unit, request.scratch / "events") or [None], held.leaves)
    owned = [p for optimizer in step.optimizers for group in optimizer.param_groups for p in group["params"]]
    parts = find_parts(unit, [*held.leaves, *owned])
    step.optimizers = step.optimizers or _optimizers_of(held, step)
    batches, states, restore = batches_of(step), _random_states(), keep_weights(parts)
    reached, silence = request.scratch / "reached", ExitStack()

    def review(val_unit: Unit | None) -> None:
        Loading.longest, Backward.act = None, Backward.original
        with silence, torch.inference_mode(False), torch.enable_grad():
            silence.close()
            restore()
            states()
            finish(_review(parts, step, batches, val_unit, request, deadline))

    def review_validated(val_unit: Unit) -> None:
        reached.touch()
        review(val_unit)

    if go_on(ValidationWatch(held, unit, list(parts.values()), review_validated), reached, VALIDATION_S * crowding()):
        silence.enter_context(silenced(step.things, step.skip, lambda _: None, keeps_modes=False))
        return True
    if (request.scratch / ANSWER).exists():  # the copy has reviewed it, with its validation
        finish({})
    review(None)
    return False


def _events(unit: Unit, file: Path) -> list[Optimizer | None]:
    """What a step does: a usual one, or the first of a loop if only that steps all optimizers."""
    things = living_things()
    usual = events(unit, things, file)
    optimizers = {id(thing) for thing in things if isinstance(thing, Optimizer)}
    if not unit.loaders or optimizers.issubset(map(id, usual)):
        return usual
    unit.turn = 0
    first = events(unit, things, file)
    if len(set(map(id, first))) > len(set(map(id, usual))):
        return first
    unit.turn = None
    return usual


def _optimizers_of(held: Held, step: Step) -> list[Optimizer]:
    """For steps that are a closure, or a part of an accumulation: the optimizers of the parameters in the graph."""
    leaves = {id(leaf) for leaf in held.leaves}
    optimizers = [thing for thing in step.things if isinstance(thing, Optimizer)]
    return [optimizer for optimizer in optimizers if not leaves.isdisjoint(weights_of(optimizer))]


def _random_states() -> Callable[[], None]:
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def restore() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(own)

    return restore


def _review(
    parts: dict[str, nn.Module], step: Step, batches: Any, val_unit: Unit | None, request: Request, deadline: float
) -> dict[str, Any]:
    """What the probes say of a script's step, as Report's fields."""
    answer: dict[str, Any] = {"findings": [], "checked": [], "notes": [], "looked_for": []}
    has_batches = isinstance(batches, DataLoader) or bool(batches)
    if not has_batches:
        answer["notes"].append("what needs a batch: the step takes no tensors from a loader or a variable")
    is_sparse = isinstance(batches, list) and any(leaf.is_sparse for leaf in tensors(batches))
    batches = batches if has_batches else [{}]
    model, why_unvalidated = _script(parts, step, batches, val_unit)
    answer["notes"] += [f"validation: {reason}" for reason in why_unvalidated]

    def look(begun: Subject) -> None:
        probes = {name: probe for name, probe in all_probes().items() if name not in _OTHERWISE}
        todo = {name: probe for name, probe in probes.items() if has_batches or name in _OF_ANY}
        todo = {name: probe for name, probe in todo.items() if step.num_losses == 1 or name not in _OF_ONE_LOSS}
        for names, reason in _unfit(begun, step, is_sparse):
            if left := [name for name in names if name in todo]:
                answer["notes"].append(f"{', '.join(left)}: {reason}")
            todo = {name: probe for name, probe in todo.items() if name not in names}
        todo = {name: _adapted(name, probe) for name, probe in todo.items() if probe.ids & request.ids}
        results = run_probes(todo, begun, deadline, _PROBE_SHARE * request.limit_s)
        answer["notes"] += [*begun.limits, *describe_errors(results)]
        for name, result in results.items():
            if "error" in result:
                continue
            answer["findings"] += [_placed(item, step, batches) | {"probe": name} for item in result["findings"]]
            answer["checked"] += result["checked"]
            answer["looked_for"] += sorted(todo[name].ids & request.ids)

    open_subject(model, None, {}, look)
    optimizers = notes.living(Optimizer)
    owned = set().union(*map(weights_of, optimizers))
    # without an optimizer they are updated by hand, on purpose; another part of the script may have one
    optimised = not step.optimizers or all(id(p) in owned or not p.requires_grad for p in model.parameters())
    answer["findings"] = [
        item
        for item in answer["findings"]
        if not _is_of_device(item) and not (optimised and item["id"] == "parameter-not-optimized")
    ]
    text = "".join(Path(file).read_text(encoding="utf-8") for file in model.sources)
    for item in answer["findings"]:
        if not re.search(_OF_LATER.get(item["id"], ""), text):
            item["severity"] = "advice"
    return answer


def _unfit(begun: Subject, step: Step, is_sparse: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """Probes that do not fit the batches, and why."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in step.optimizers):
        yield ("learning_rate",), "LBFGS searches along a line"
    if not any(True for _ in begun.model.parameters()):
        yield _OF_WEIGHTS, "no module holds the weights"
    if not step.unit.loaders:  # time may come first
        yield _OF_SAMPLES, "without a loader, nothing says which dimension holds the samples"
    if is_sparse:
        yield _OF_DENSE, "the batches are sparse"
    smaller = few(begun.batches[0])
    if smaller is None or not tensors(smaller):
        return
    try:
        sandbox.call(lambda: bool(begun.train(smaller)), _CUT_S)
    except sandbox.SandboxError:
        yield _OF_ANY_SIZE, "the step takes no smaller batches"


def _script(parts: dict[str, nn.Module], step: Step, batches: Any, val_unit: Unit | None) -> tuple[Script, list[str]]:
    """The script's steps as a module, and why it does not validate, if so."""
    reason = "the script does not reach one here, or it takes no batch"
    if val_unit is not None:
        try:
            val_batches = _val_batches(step, val_unit)
        except sandbox.SandboxError as error:
            val_batches, reason = [], str(error)
        if isinstance(val_batches, DataLoader) or val_batches:
            return ValidatedScript(parts, step, batches, val_unit, val_batches), []
    return Script(parts, step, batches), [reason]


def _val_batches(step: Step, unit: Unit) -> Any:
    """The batches of a validation; it must end soon without a loader, as many probes run all of it."""

    def run() -> None:
        with torch.set_grad_enabled(unit.gradients), silenced(step.things, lambda *_, **__: None, lambda _: None):
            unit.run({})

    if not unit.loaders:
        sandbox.call(run, _VALIDATED_S * crowding())
    return val_batches_of(unit, NUM_VAL, run)


def _adapted(name: str, probe: Probe) -> Probe:
    """The probe, which for layers in plain lists also looks at modules that hold the script's models so."""
    if name != "registration":
        return probe

    def look(begun: Subject) -> Iterator[Finding | str]:
        weights = {id(weight) for weight in begun.model.parameters()}
        known = {id(module) for module in begun.model.modules()}
        models = [begun.model]
        for module in notes.living(nn.Module):
            containers = [value for value in vars(module).values() if isinstance(value, list | tuple | dict)]
            if id(module) not in known and any(id(leaf) in weights for leaf in held(containers)):
                models.append(module)
        begun.attempt()
        for model in models:
            part = copy(begun)  # with the same recorded step
            part.model = model
            yield from probe.look(part)

    return replace(probe, look=look)


def _placed(item: dict[str, Any], step: Step, batches: Any) -> dict[str, Any]:
    """A finding with the line that made the optimizer or the loader, where the probe knew none."""
    things: list[Any] = []
    if item["id"] in _OF_OPTIMIZER:
        things = step.optimizers
    elif item["id"] in _OF_LOADER:
        things = step.unit.loaders
    place = next(filter(None, map(maker, things)), None)
    if item["file"] or place is None:
        return item
    if item["id"] in _OF_LOADER:
        place = option([place], _OF_LOADER[item["id"]])[0] or place
    return item | {"file": place.file, "line": place.line, "code": place.code}


def _is_of_device(item: dict[str, Any]) -> bool:
    """Whether a finding comes of the script's own device, which is the CPU in this review alone.

    `.to(device)` then looks like a reading of values, and `torch.zeros(…, device=device)` like a tensor left behind.
    What remains is certain: `.cpu()`, and a tensor made in a model's forward without any word of a device by one of
    torch's factories: layers make tensors as well, on the device of the batch, which here is the CPU.
    """
    if item["id"] == "host-sync":
        return item["message"].startswith(".cpu()") and ".cpu(" not in item["code"]
    if item["id"] == "device-unsafe-tensor":
        function = source.function_at(Place(item["file"], item["line"]))
        named = any(word in item["code"] for word in ("device", ".to(", "_like(", ".new_", "cuda", "Tensor("))
        if named or function is None or function.name != "forward":
            return True
        return not any(call.lineno == item["line"] for call in source.calls(function, *_FACTORIES))
    return False
