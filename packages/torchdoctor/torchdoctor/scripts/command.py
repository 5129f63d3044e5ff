"""Reviews a script in forked processes on copies of its folder, and collects the report."""

import ast
import difflib
import gc
import importlib
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from torchdoctor import source
from torchdoctor.advice.practices import advise, program_files
from torchdoctor.errors import ReviewError
from torchdoctor.registry import all_defects
from torchdoctor.report import Report, select_findings
from torchdoctor.running import sandbox
from torchdoctor.running.machine import load_factor
from torchdoctor.running.pretended_device import redirect_cuda_to_cpu
from torchdoctor.scripts.rehearsal import BATCHES, rehearse
from torchdoctor.scripts.review import Request, review_held
from torchdoctor.scripts.run import Run

LIMIT_S = 60.0
_REHEARSAL = 0.25  # of it
_LATE_S = 3.0  # for what a process writes at its end


def review_script(script: Path, arguments: list[str], ids: frozenset[str], limit_s: float = LIMIT_S) -> Report:
    """Reviews a script in a copy of its folder; its own files are not changed.

    Args:
        script: the file.
        arguments: of the script.
        ids: of the defects to look for.
        limit_s: seconds for everything on an idle machine; on a crowded one up to three times as many.

    Raises:
        ReviewError: there is no such script, or it never calls `backward`.
    """
    start = time.monotonic()
    limit_s *= load_factor()
    _require(script)
    _import_libraries(script)
    gc.collect()
    gc.freeze()  # later searches see only what the script makes
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as scratch:
            answers = _answers(script.resolve(), arguments, ids, Path(scratch), limit_s)
    finally:
        gc.unfreeze()
    fields = ("findings", "checked", "notes", "looked_for", "ruled_out")
    findings, checked, lines, looked_for, ruled_out = (
        [item for each in answers for item in each.get(f, [])] for f in fields
    )
    findings = [item for item in select_findings(findings) if item["id"] in ids]
    looked_for = [name for name in looked_for if name in ids]
    others = all_defects().keys() - ids
    lines = [line for line in lines if line.partition(": ")[0] not in others]
    description = {name: value for each in answers for name, value in each.items() if name in ("overview", "model")}
    gains = [item for each in answers for item in each.get("gains", [])]
    advice = [*gains, *advise(program_files(script), is_script=True)]
    seconds = time.monotonic() - start
    checked = list(dict.fromkeys(checked))
    return Report(findings, checked, lines, looked_for, ruled_out, seconds=seconds, advice=advice, **description)


def _require(script: Path) -> None:
    if not script.is_file():
        near = difflib.get_close_matches(script.name, [file.name for file in script.parent.glob("*.py")])
        hint = f". Nearest: {', '.join(script.with_name(name).as_posix() for name in near)}" if near else ""
        raise ReviewError(f"{script.as_posix()}: no such file{hint}")


def _import_libraries(script: Path) -> None:
    """Imports the script's installed libraries once, before this process is forked."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # matplotlib asks when it is imported
    names = []
    for node in source.tree(str(script)).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    for name in names:
        with suppress(Exception):  # of any kind: the script itself will tell
            spec = find_spec(name.partition(".")[0])
            if spec is not None and spec.origin and not source.is_user(spec.origin):
                importlib.import_module(name)


def _answers(
    script: Path,
    arguments: list[str],
    ids: frozenset[str],
    scratch: Path,
    limit_s: float,
    prepare: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Runs the review and the rehearsal in parallel, each in its own copy of the folder, and returns their answers.

    A script that asks for CUDA whether there is one or not runs again, with the CPU in its place.
    """

    def reviewing(copied: Path, answer: Path) -> NoReturn:
        review_held(Request(copied, arguments, answer, ids, limit_s))

    def rehearsal(longest: int | None) -> Run:
        def rehearsing(copied: Path, answer: Path) -> NoReturn:
            rehearse(copied, arguments, answer, _REHEARSAL * limit_s, longest)

        return Run(script, scratch / f"rehearsal-{longest}", rehearsing, prepare)

    review, short = Run(script, scratch / "review", reviewing, prepare), rehearsal(BATCHES)
    sandbox.gather([review, short], limit_s + _LATE_S)
    answer, real = review.answer, short.answer
    if _wants_cuda(answer) and prepare is not redirect_cuda_to_cpu:
        answers = _answers(script, arguments, ids, Path(tempfile.mkdtemp(dir=scratch)), limit_s, redirect_cuda_to_cpu)
        return [*answers, {"notes": ["an accelerator: what the script sends to CUDA stayed on the CPU"]}]
    _require_training(script, review)
    if "crash" in answer:
        crash = answer["crash"]
        unsaid = [] if crash["id"] in ids else [f"the script does not start: {crash['message']}"]
        return [{"findings": [crash], "notes": unsaid}]
    if "crash" in real:  # was it for the loaders that were cut short?
        whole = rehearsal(None)
        sandbox.gather([whole], _REHEARSAL * limit_s + _LATE_S)
        if "crash" in whole.answer:
            real["findings"].append(whole.answer["crash"])
        else:
            real["notes"].append(f"the script's end: {real['crash']['message']}, with loaders cut short")
    late = f"the step: the script did not call backward, or the review not end, in {limit_s:g} s"
    return [answer or {"notes": [late]}, real]


def _wants_cuda(answer: dict[str, Any]) -> bool:
    return any(word in answer.get("crash", {}).get("message", "") for word in ("CUDA", "NVIDIA", "MPS"))


def _require_training(script: Path, review: Run) -> None:
    """Raises ReviewError if the script stopped before its first step for another reason than a defect."""
    answer = review.answer
    crash = answer.get("forbidden") or answer.get("crash") or {}
    if answer.get("exit"):
        code = answer["exit"]
        where, reason = "", f"the script stopped with exit code {code} before any training: {review.last_lines}"
    elif "exit" in answer:
        where, reason = "", "the script ended without calling backward, so there is no training to review"
    elif "forbidden" in answer:
        reason = "a review runs without a network and writes in the script's folder alone; run the script once before"
        where, reason = f":{crash['line']}", f"{reason}: {crash['message']}"
    elif _wants_cuda(answer):
        where, reason = f":{crash['line']}", f"the review has no accelerator: {crash['message']}"
    else:
        return
    raise ReviewError(f"{script.name}{where}: {reason}")
