"""Reviews a program: runs it to its first training step in a forked process and runs the probes there."""

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import lightning.pytorch as pl

from torchdoctor.advice.gains import add_gains
from torchdoctor.advice.practices import advise
from torchdoctor.evidence import failure, origins, scalers
from torchdoctor.evidence.overview import describe
from torchdoctor.findings import SEVERITIES, Finding, NotLookedAt, is_grave
from torchdoctor.probe import Probe
from torchdoctor.registry import all_defects, all_probes
from torchdoctor.report import Report, select_findings
from torchdoctor.running import sandbox
from torchdoctor.running.logger import make_folders_below
from torchdoctor.running.machine import num_cores
from torchdoctor.running.opening import look_in_second_epoch, open_subject
from torchdoctor.running.pretended_device import redirect_cuda_to_cpu, sends_to_cuda
from torchdoctor.running.rehearsal import rehearse
from torchdoctor.running.subject import Subject

LIMIT_S = 110.0  # for a program
_PROBE_SHARE = 0.2  # of it
_LATE_S = 2.0  # for a process to tell what it has when time is up
_MAX_STEPS = 10_000  # of a training whose program takes them from the Trainer, which has none
LANES = 2  # more gain little: the longest probe and the start remain

Build = Callable[[], tuple[pl.LightningModule, pl.LightningDataModule | None]]
Result = dict[str, Any]  # of a probe, as it comes from its process: findings, checked and notes, or error


def review_module(
    build: Build, settings: dict[str, Any] | None = None, ids: frozenset[str] | None = None, limit_s: float = LIMIT_S
) -> Report:
    """Reviews a program in forked processes, isolated from the caller.

    Args:
        build: makes the module and its data.
        settings: options of Lightning's Trainer that the user chose.
        ids: of the defects to look for, all when left out; a probe that can find none of them is not run.
        limit_s: seconds for everything; a probe gets a fifth of them.

    Raises:
        ReviewError: this system cannot copy a process.
    """
    start = time.monotonic()
    wanted = frozenset(all_defects()) if ids is None else ids  # imports the probes, which all copies then have
    with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as folder:
        chosen = (settings or {}) | {"default_root_dir": folder}
        try:
            answer = sandbox.call(lambda: _examine(build, chosen, wanted, limit_s), limit_s + 5)
        except sandbox.SandboxError as error:
            return Report(notes=[f"the program could not be reviewed: {error}"], seconds=time.monotonic() - start)
    findings = [item for item in select_findings(answer["findings"]) if item["id"] in wanted]
    return Report(
        findings,
        answer["checked"],
        answer["notes"],
        answer["looked_for"],
        answer["ruled_out"],
        overview=answer.get("overview", []),
        advice=[*answer.get("gains", []), *advise(answer.get("files", []), is_script=False)],
        seconds=time.monotonic() - start,
    )


def _examine(build: Build, settings: dict[str, Any], ids: frozenset[str], limit_s: float) -> dict[str, Any]:
    """The results of all probes on a program, as the fields of a Report, with consequences."""
    answer: dict[str, Any] = {"findings": [], "checked": [], "notes": [], "looked_for": [], "ruled_out": []}
    deadline, share_s = time.monotonic() + limit_s, _PROBE_SHARE * limit_s

    def look(begun: Subject) -> None:
        todo = {name: probe for name, probe in all_probes().items() if probe.ids & ids}
        results = run_probes(todo, begun, deadline, share_s)
        answer["files"] = begun.files
        if len(todo) > 1:
            answer["overview"] = describe(begun)
            add_gains(answer, begun, ids, deadline)
        answer["notes"] += [*begun.limits, *describe_errors(results), *notes_of(results, ids)]
        add_results(answer, todo, results, ids)

    gc.freeze()  # collections in the copies look only at what the program makes, and copy no memory for the rest
    origins.note_makers()
    scalers.note_fits()
    make_folders_below(settings["default_root_dir"])
    try:
        pl.seed_everything(0, verbose=False)
        model, data = build()
        if sends_to_cuda(model):
            redirect_cuda_to_cpu()
        open_subject(model, data, settings, look)
    except Exception as error:  # the user's program fails before there is anything to probe
        if "max_steps" not in settings and failure.takes_max_steps(error):
            answer = _examine(build, settings | {"max_steps": _MAX_STEPS}, ids, deadline - time.monotonic())
            answer["notes"].append(f"the program needs --trainer.max_steps, here {_MAX_STEPS}")
            return answer
        finding = failure.as_finding(error)
        answer["findings"].append(finding.as_dict() | {"probe": "start"})
        if finding.defect.id not in ids:
            answer["notes"].append(f"the program does not start: {finding.message}")
    return answer


def run_probes(todo: dict[str, Probe], begun: Subject, deadline: float, share_s: float) -> dict[str, Result]:
    """Results of the probes, in their order.

    Args:
        todo: the probes by name.
        begun: what they look at.
        deadline: of all, in seconds of `time.monotonic`.
        share_s: seconds for one probe.
    """
    if len(todo) > 1:  # which share the steps
        begun.record_steps()
    results = _run_in_lanes(todo, begun, deadline, share_s)
    results = {
        name: results.get(name) or _run_in_own_process(probe, begun, deadline, share_s) for name, probe in todo.items()
    }
    for name, ids in _ids_found_again(todo, results, begun, deadline, share_s).items():
        remaining = [item for item in results[name]["findings"] if item["id"] in ids or not is_grave(item)]
        results[name]["findings"] = remaining
    return results


def _ids_found_again(
    todo: dict[str, Probe], results: dict[str, Result], begun: Subject, deadline: float, share_s: float
) -> dict[str, list[str]]:
    """Ids of grave findings that are found again at the second epoch, by probe.

    What is wrong at the first batch alone is a part of the beginning: a layer that fades in, a bank that fills.
    """
    grave = [name for name, result in results.items() if any(map(is_grave, result.get("findings", [])))]
    repeated = {name: todo[name] for name in grave if not todo[name].at_start and todo[name].watch is None}
    again: dict[str, Result] = {}

    def look(later: Subject) -> None:
        again.update((name, _run_in_own_process(probe, later, deadline, share_s)) for name, probe in repeated.items())

    def run() -> Iterator[tuple[str, list[str]]]:
        look_in_second_epoch(begun, look)
        for name, result in again.items():
            if "error" not in result:
                yield name, [item["id"] for item in result["findings"]]

    items = sandbox.gather([run], min(share_s, deadline - time.monotonic()))[0] if repeated else []
    return dict(item for item in items if not isinstance(item, sandbox.SandboxError))


def add_results(answer: Result, todo: dict[str, Probe], results: dict[str, Result], ids: frozenset[str]) -> None:
    """Adds the results of completed probes to an answer, gravest first.

    Args:
        answer: Report's fields.
        todo: the probes by name.
        results: theirs.
        ids: of the defects to look for.
    """
    for name in _gravest_first(todo):
        result = results[name]
        if "error" in result:
            continue
        looked = looked_for(todo[name], result, ids)
        answer["findings"] += [item | {"probe": name} for item in result["findings"]]
        answer["checked"] += result["checked"]
        answer["looked_for"] += looked
        answer["ruled_out"] += looked if result["checked"] and not result["findings"] else []


def _gravest_first(todo: dict[str, Probe]) -> list[str]:
    """Names of probes: those of critical defects first, among them experiments before measurements."""

    def rank(name: str) -> tuple[int, bool, str]:
        defects = todo[name].defects
        severity = min(SEVERITIES.index(defect.severity) for defect in defects)
        return severity, all(defect.shown_by.kind != "experiment" for defect in defects), name

    return sorted(todo, key=rank)


def looked_for(probe: Probe, result: Result, ids: frozenset[str]) -> list[str]:
    """Those of the defects that a probe could have found, in its result."""
    return sorted(name for name in probe.ids & ids if not any(note.startswith(f"{name}: ") for note in result["notes"]))


def notes_of(results: dict[str, Result], ids: frozenset[str]) -> list[str]:
    """Notes on what the completed probes could not check, each once."""
    lines = [note for result in results.values() for note in result.get("notes", [])]
    return [note for note in dict.fromkeys(lines) if note.partition(": ")[0] in ids]


def describe_errors(results: dict[str, Result]) -> list[str]:
    """A line for each error of probes: several meet the same one, at other lines, where the program itself fails."""
    names: dict[str, list[str]] = {}
    for name, result in results.items():
        if "error" in result:
            names.setdefault(result["error"].partition(" (")[0], []).append(name)
    return [f"{', '.join(group)}: {results[group[0]]['error']}" for group in names.values()]


def _run_in_lanes(todo: dict[str, Probe], begun: Subject, deadline: float, share_s: float) -> dict[str, Result]:
    """Results of the probes, as far as time allows, from as many processes at a time as there are cores.

    Each takes the next job that none has taken: light probes one after another, a rehearsal, or one probe in its own
    copy of the process.
    """
    light = {name: probe for name, probe in todo.items() if probe.is_light}
    rehearsing = {name: probe for name, probe in todo.items() if probe.watch is not None}
    others = {name: probe for name, probe in todo.items() if name not in light and name not in rehearsing}

    def run_alone(name: str) -> Iterator[tuple[str, Result]]:
        yield name, _run_in_own_process(others[name], begun, deadline, share_s)

    jobs = [
        partial(_run_together, light, begun, deadline, share_s),
        partial(_run_together, rehearsing, begun, deadline, share_s, rehearsed=True),
        *(partial(run_alone, name) for name in others),
    ]
    queue, writer = os.pipe()
    os.write(writer, bytes(range(len(jobs))))
    os.close(writer)

    def run_next() -> Iterator[tuple[str, Result]]:
        while number := os.read(queue, 1):
            yield from jobs[number[0]]()

    lanes = [run_next] * min(num_cores(), LANES)
    answers = sandbox.gather(lanes, deadline - time.monotonic() + _LATE_S)
    os.close(queue)
    return dict(item for items in answers for item in items if not isinstance(item, sandbox.SandboxError))


def _run_together(
    some: dict[str, Probe], begun: Subject, deadline: float, share_s: float, rehearsed: bool = False
) -> Iterator[tuple[str, Result]]:
    """Results of probes that run one after another in one copy of the process, until one of them ends it or time is up.

    Args:
        some: the probes; light ones, or those that share a rehearsal.
        begun: what they look at.
        deadline: of the whole review.
        share_s: seconds for them.
        rehearsed: whether a rehearsal, which must run through, comes first; else each finds the subject as it was.
    """

    def run() -> Iterator[tuple[str, Result]]:
        if rehearsed:
            rehearse(begun, {probe.watch for probe in some.values() if probe.watch is not None})
        for name, probe in some.items():
            try:
                with nullcontext() if rehearsed else begun.unchanged():
                    result = _collect_findings(probe.look(begun))
            except Exception as error:  # of one probe; the others go on
                result = {"error": sandbox.describe(error)}
            yield name, result

    if some:
        items = sandbox.gather([run], min(share_s, deadline - time.monotonic()))[0]
        yield from (item for item in items if not isinstance(item, sandbox.SandboxError))  # the others run on their own


def _run_in_own_process(probe: Probe, begun: Subject, deadline: float, share_s: float) -> Result:
    remaining_s = deadline - time.monotonic()
    if remaining_s < 1:
        return {"error": "no time was left"}
    try:
        return sandbox.call(lambda: _collect_findings(probe.look(begun)), min(share_s, remaining_s))
    except sandbox.SandboxError as error:
        return {"error": str(error)}


def _collect_findings(yielded: Iterable[Finding | str | NotLookedAt]) -> Result:
    items = list(yielded)
    return {
        "findings": [item.as_dict() for item in items if isinstance(item, Finding)],
        "checked": [item for item in items if isinstance(item, str)],
        "notes": [str(item) for item in items if isinstance(item, NotLookedAt)],
    }
