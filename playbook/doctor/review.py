"""The review: builds the program in a sandbox, lets every probe look at it, and keeps what is a cause."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from inspect import getmembers, isfunction
from pkgutil import iter_modules
from typing import Any

import lightning.pytorch as pl
from torch import nn

from playbook.doctor import probes, sandbox, source, subject
from playbook.doctor.findings import DEFECTS, SEVERITIES, Finding, Place
from playbook.doctor.subject import Subject

LIMIT_S = 110.0  # for a program
PROBE_SHARE = 0.2  # of it
LANES = 2  # more gain little: the longest probe and the start remain

# a cause, and what it brings about: when the cause is found, its consequences are not reported
_POOR_START = {"bad-initial-loss", "loss-not-decreasing", "learning-rate-too-high", "exploding-gradient"}
CAUSES: dict[str, set[str]] = {
    "missing-super-init": {"crash"},
    "inplace-on-graph": {"crash"},
    "norm-batch-size-one": {"crash"},
    "non-scalar-loss": {"crash"},
    "graph-retained": {"crash"},
    "batch-mixing": {"crash"},
    "bad-broadcast": {"crash", "loss-not-decreasing"},
    "device-unsafe-tensor": {"crash"},
    "unregistered-submodule": {"crash", "device-unsafe-tensor"},
    "non-finite-data": {"non-finite", "unnormalized-input", *_POOR_START},
    "label-out-of-range": {"crash", "non-finite", *_POOR_START},
    "channel-order": {"crash", "unnormalized-input", *_POOR_START},
    "unnormalized-input": {"dead-units", "amp-unsafe", *_POOR_START},
    "constant-labels": {"input-independent", "train-not-shuffled", *_POOR_START},
    "misaligned-labels": {"loss-not-decreasing"},
    "eval-augmentation": {"eval-nondeterminism"},
    "non-finite": _POOR_START,
    "double-softmax": {"bad-initial-loss", "loss-not-decreasing", "vanishing-gradient"},
    "sigmoid-before-logits-loss": {"bad-initial-loss", "loss-not-decreasing", "vanishing-gradient"},
    "activation-on-logits": {"bad-initial-loss", "loss-not-decreasing", "dead-units"},
    "detached-graph": {"loss-not-decreasing"},
    "parameter-not-optimized": {"loss-not-decreasing"},
    "dead-units": {"input-independent", "loss-not-decreasing", "vanishing-gradient"},
    "input-independent": {"loss-not-decreasing", "vanishing-gradient"},
    "vanishing-gradient": {"loss-not-decreasing"},
    "learning-rate-too-high": {"exploding-gradient"},
    "scheduler-cadence": {"learning-rate-too-low"},
}

Build = Callable[[], tuple[pl.LightningModule, pl.LightningDataModule | None]]


@dataclass(frozen=True)
class Probe:
    """One file of probes/.

    Args:
        ids: of the defects that it can find.
        light: whether it trains nothing and waits for nothing, so that others may run after it in the same process.
        look: its function.
    """

    ids: frozenset[str]
    light: bool
    look: Callable[[Subject], Iterable[Finding | str]]


@dataclass
class Report:
    """What the review of one program found.

    Args:
        findings: as Finding.as_dict has them; the severest first.
        checked: what was looked at and is as it should be, a sentence each.
        notes: what could not be looked at, and why.
        looked_for: ids of the defects whose probes ran to their end.
        seconds: how long it took.
    """

    findings: list[dict[str, Any]] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked_for: list[str] = field(default_factory=list)
    seconds: float = 0.0


def all_probes() -> dict[str, Probe]:
    """The one public function of every file in probes/ with its IDS, by the file's name."""
    found = {}
    for info in iter_modules(probes.__path__):
        module = import_module(f"{probes.__name__}.{info.name}")
        own = [f for name, f in getmembers(module, isfunction) if f.__module__ == module.__name__ and name[0] != "_"]
        assert len(own) == 1, f"{info.name}: expected one public function, got {len(own)}"
        found[info.name] = Probe(frozenset(module.IDS), getattr(module, "LIGHT", False), own[0])
    return found


def review(
    build: Build,
    settings: dict[str, Any] | None = None,
    ids: frozenset[str] = frozenset(DEFECTS),
    limit_s: float = LIMIT_S,
) -> Report:
    """Reviews one program, in copies of this process: whatever it does, the caller goes on.

    Args:
        build: makes the module and its data.
        settings: options of Lightning's Trainer that the user chose.
        ids: of the defects to look for; a probe that can find none of them is not run.
        limit_s: seconds for everything; a probe gets a fifth of them.
    """
    start = time.monotonic()
    answer: dict[str, Any]
    try:
        answer = sandbox.call(lambda: _examine(build, settings or {}, ids, limit_s), limit_s + 5)
    except sandbox.SandboxError as error:
        answer = _nothing() | {"notes": [f"the program could not be reviewed: {error}"]}
    findings = [item for item in _suppressed(_causes(answer["findings"])) if item["id"] in ids]
    findings.sort(key=lambda item: (SEVERITIES.index(item["severity"]), item["file"], item["line"]))
    return Report(findings, answer["checked"], answer["notes"], answer["looked_for"], time.monotonic() - start)


def _nothing() -> dict[str, Any]:
    return {"findings": [], "checked": [], "notes": [], "looked_for": []}


def _examine(build: Build, settings: dict[str, Any], ids: frozenset[str], limit_s: float) -> dict[str, Any]:
    answer, deadline, share_s = _nothing(), time.monotonic() + limit_s, PROBE_SHARE * limit_s

    def look(seen: Subject) -> None:
        todo = {name: probe for name, probe in all_probes().items() if probe.ids & ids}
        found = _in_lanes(todo, seen, deadline, share_s)
        for name, probe in todo.items():
            result = found.get(name) or _alone(probe, seen, deadline, share_s)
            if "error" in result:
                answer["notes"].append(f"{name}: {result['error']}")
                continue
            answer["findings"] += [item | {"probe": name} for item in result["findings"]]
            answer["checked"] += result["checked"]
            answer["looked_for"] += sorted(probe.ids & ids)

    try:
        pl.seed_everything(0, verbose=False)
        model, data = build()
        subject.open_subject(model, data, settings, look)
    except Exception as error:  # the user's program fails before there is anything to probe
        failure = failed(error)
        answer["findings"].append(failure.as_dict() | {"probe": "start"})
        if failure.id not in ids:
            answer["notes"].append(f"the program does not start: {failure.message}")
    return answer


def _in_lanes(todo: dict[str, Probe], seen: Subject, deadline: float, share_s: float) -> dict[str, dict[str, Any]]:
    """Results of the probes, from as many processes at a time as there are cores; without those that ended theirs.

    The first process runs the light probes one after another, and then its share of the others, each in its own copy.
    """
    light = {name: probe for name, probe in todo.items() if probe.light}
    others = [name for name in todo if name not in light]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    lanes = [others[start :: min(cores, LANES)] for start in range(min(cores, LANES))]

    def run(lane: list[str], first: dict[str, Probe]) -> dict[str, dict[str, Any]]:
        results = _together(first, seen, share_s) if first else {}
        return results | {name: _alone(todo[name], seen, deadline, share_s) for name in lane}

    jobs = [lambda lane=lane, first=light if not index else {}: run(lane, first) for index, lane in enumerate(lanes)]
    answers = sandbox.calls(jobs, max(1.0, deadline - time.monotonic()))
    return {name: result for answer in answers if isinstance(answer, dict) for name, result in answer.items()}


def _together(light: dict[str, Probe], seen: Subject, share_s: float) -> dict[str, dict[str, Any]]:
    """Results of light probes that ran one after another in one copy of the process; none if one of them ended it."""

    def run() -> dict[str, dict[str, Any]]:
        results: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + share_s / 2
        for name, probe in light.items():
            if time.monotonic() > end:  # the others each on its own
                break
            try:
                with seen.unchanged():
                    results[name] = _sorted_out(probe.look(seen))
            except Exception as error:  # of one probe; the others go on
                results[name] = {"error": sandbox.told(error)}
        return results

    try:
        return sandbox.call(run, share_s)
    except sandbox.SandboxError:
        return {}  # each on its own will tell which


def _alone(probe: Probe, seen: Subject, deadline: float, share_s: float) -> dict[str, Any]:
    left = deadline - time.monotonic()
    if left < 1:
        return {"error": "no time was left"}
    try:
        return sandbox.call(lambda: _sorted_out(probe.look(seen)), min(share_s, left))
    except sandbox.SandboxError as error:
        return {"error": str(error)}


def _sorted_out(items: Iterable[Finding | str]) -> dict[str, list[Any]]:
    found = list(items)
    findings = [item.as_dict() for item in found if isinstance(item, Finding)]
    return {"findings": findings, "checked": [item for item in found if isinstance(item, str)]}


def failed(error: Exception) -> Finding:
    """What an error means that the program raised before its first step."""
    place = source.raised_at(error)
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if "before Module.__init__() call" in text or "__init__() call" in text:
        return Finding("missing-super-init", place, text, "super().__init__()  # the first line of __init__")
    owner = getattr(error, "obj", None)
    if isinstance(error, AttributeError) and isinstance(owner, nn.Module) and "_parameters" not in vars(owner):
        text += ": a class before nn.Module among its bases does not pass __init__ on"
        return Finding("missing-super-init", _last_init(type(owner)), text, "super().__init__()  # in that class, too")
    return Finding("crash", place, text, "")


def _last_init(kind: type) -> Place | None:
    """The __init__ that the chain of `super().__init__()` ends in: the first one that does not call it."""
    inits = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base) and base is not nn.Module]
    own = [function for function in inits if source.definition(function) is not None]
    ends = [function for function in own if source.first_call([function], "__init__") is None]
    return source.definition((ends or own or [kind])[0])


def _causes(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    hidden = set().union(*[CAUSES.get(item["id"], set()) for item in findings])
    kept: dict[tuple[str, str, int], dict[str, Any]] = {}
    for item in findings:
        if item["id"] not in hidden:
            kept.setdefault((item["id"], item["file"], item["line"]), item)
    return list(kept.values())


def _suppressed(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings without those that `# doctor: ignore[id] reason` at their line, or alone above it, turns off."""
    return [item for item in findings if not any(_ignores(text, item["id"]) for text in _near(item))]


def _near(item: dict[str, Any]) -> Iterator[str]:
    place = Place(item["file"], item["line"])
    yield place.code
    above = Place(item["file"], item["line"] - 1).code
    if above.startswith("#"):
        yield above


def _ignores(text: str, defect: str) -> bool:
    _, mark, rest = text.partition("# doctor: ignore[")
    names, _, reason = rest.partition("]")
    return bool(mark and reason.strip()) and defect in [name.strip() for name in names.split(",")]


assert set(CAUSES) | set().union(*CAUSES.values()) <= set(DEFECTS)
