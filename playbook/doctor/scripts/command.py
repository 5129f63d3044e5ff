"""`doctor train.py …`: the command line, the processes that run the script, and the report."""

import argparse
import ast
import difflib
import gc
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import yaml

from playbook.doctor import patch, sandbox, source
from playbook.doctor.errors import ReviewError
from playbook.doctor.machine import crowding
from playbook.doctor.options import select_ids, set_thresholds
from playbook.doctor.render import render
from playbook.doctor.report import Report, select_findings
from playbook.doctor.scripts import notes, rehearsal
from playbook.doctor.scripts.folder import Copy, confine
from playbook.doctor.scripts.rehearsal import rehearse
from playbook.doctor.scripts.review import Request, review_held

LIMIT_S = 60.0
_REHEARSAL = 0.25  # of it
_OUTPUT = 4  # lines of a script that stops
_LATE_S = 3.0  # for what a process writes at its end


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ReviewError(f"doctor: {message}")


def run(args: list[str], command: list[str], write: patch.Write) -> int:
    """Reviews a script and prints the report.

    Args:
        args: options of the review, the script, and the script's own arguments.
        command: what starts a review, after the name of the Python interpreter.
        write: writes a file at once, for `--fix`.

    Returns:
        1 if a finding is critical, else 0.

    Raises:
        ReviewError: an option or the script is not there, or the script never calls `backward`.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name in ("only", "skip", "thresholds"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--severity", default="advice")
    parser.add_argument("--format", default="terminal", choices=["terminal", "json", "markdown", "sarif"])
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    if options.thresholds:
        set_thresholds(yaml.safe_load(options.thresholds))
    script, ids = Path(options.script), select_ids(options.only, options.skip, options.severity)
    report = patch.with_patches(review_script(script, options.arguments, ids))
    if options.fix:
        here = Path.cwd().resolve()
        named = script.resolve().relative_to(here) if script.resolve().is_relative_to(here) else script
        own = ["--only", ",".join(sorted({*ids, "crash"})), "--format", "json"]
        own += ["--thresholds", options.thresholds] if options.thresholds else []
        again = patch.reviewer([*command, *own, str(named), *options.arguments])
        report = patch.write_patches(report, again, write)
    print(render(report, options.format, options.script, writes_tests=False), flush=True)
    return int(report.is_critical)


def review_script(script: Path, arguments: list[str], ids: frozenset[str], limit_s: float = LIMIT_S) -> Report:
    """Reviews a script in a copy of its folder; the script's own files stay as they are.

    Args:
        script: the file.
        arguments: of the script.
        ids: of the defects to look for.
        limit_s: seconds for everything on an idle machine; on a crowded one up to three times as many.

    Raises:
        ReviewError: there is no such script, or it never calls `backward`.
    """
    start = time.monotonic()
    limit_s *= crowding()
    _require(script)
    scratch = Path(tempfile.mkdtemp(prefix="doctor-"))
    _import_libraries(script)
    gc.collect()
    gc.freeze()  # later searches see only what the script makes
    try:
        answers = _run(script.resolve(), arguments, ids, scratch, limit_s)
    finally:
        gc.unfreeze()
        shutil.rmtree(scratch, ignore_errors=True)
    findings, checked, said, looked_for = [], [], [], []
    for answer in answers:
        findings += answer.get("findings", [])
        findings += [answer["crash"]] if "crash" in answer else []
        checked += answer.get("checked", [])
        said += answer.get("notes", [])
        looked_for += answer.get("looked_for", [])
    kept = [item for item in select_findings(findings) if item["id"] in ids]
    looked_for = [name for name in looked_for if name in ids]
    return Report(kept, list(dict.fromkeys(checked)), said, looked_for, time.monotonic() - start)


def _require(script: Path) -> None:
    if script.is_file():
        return
    folder = script.parent
    names = [entry.name for entry in folder.iterdir() if entry.suffix == ".py"] if folder.is_dir() else []
    near = [(folder / name).as_posix() for name in difflib.get_close_matches(script.name, names)]
    hint = f". Nearest: {', '.join(near)}" if near else ""
    raise ReviewError(f"{script.as_posix()}: no such file{hint}")


def _run(
    script: Path, arguments: list[str], ids: frozenset[str], scratch: Path, limit_s: float
) -> list[dict[str, Any]]:
    """Answers of the review and of the rehearsal, which run at the same time, each in its own copy of the folder."""
    here = Path.cwd().resolve()
    folder = here if script.is_relative_to(here) else script.parent
    places = [scratch / name for name in ("review", "rehearsal", "again")]

    def in_copy(place: Path, act: Callable[[Path], NoReturn]) -> Callable[[], NoReturn]:
        place.mkdir()
        copy = Copy(folder, place / "tree")

        def run() -> NoReturn:
            confine(place)
            os.chdir(copy.folder)
            notes.patch()
            _log_to(place / "output")
            act(copy.folder / script.relative_to(copy.original))

        copies[place] = copy
        return run

    def answer(place: Path) -> dict[str, Any]:
        file = next(place.glob("*.json"), None)
        return copies[place].restored(json.loads(file.read_text(encoding="utf-8"))) if file is not None else {}

    def rehearsing(place: Path, longest: int | None) -> Callable[[], NoReturn]:
        seconds = _REHEARSAL * limit_s
        return in_copy(place, lambda copied: rehearse(copied, arguments, place / "r.json", seconds, longest))

    copies: dict[Path, Copy] = {}
    jobs = [
        in_copy(places[0], lambda copied: review_held(Request(copied, arguments, places[0] / "r.json", ids, limit_s))),
        rehearsing(places[1], rehearsal.BATCHES),
    ]
    sandbox.gather(jobs, limit_s + _LATE_S)  # their answers are in files: a script may end its process as it likes
    review, real = answer(places[0]), answer(places[1])
    output = (places[0] / "output").read_text(encoding="utf-8", errors="replace")
    if "exit" in review:
        raise ReviewError(_stopped(script, review["exit"], copies[places[0]].restored(output)))
    if "forbidden" in review:
        crash = review["forbidden"]
        reason = "a review runs without a network and writes in the script's folder alone"
        raise ReviewError(f"{script.name}:{crash['line']}: {reason}; run the script once before: {crash['message']}")
    if "crash" in review:
        crash = review["crash"]
        if any(word in crash["message"] for word in ("CUDA", "NVIDIA", "MPS")):
            raise ReviewError(f"{script.name}:{crash['line']}: the review has no accelerator: {crash['message']}")
        unsaid = [] if "crash" in ids else [f"the script does not start: {crash['message']}"]
        return [review | {"notes": unsaid}]
    if "crash" in real:  # was it for the loaders that were cut short?
        sandbox.gather([rehearsing(places[2], None)], _REHEARSAL * limit_s + _LATE_S)
        whole = answer(places[2])
        crash = real.pop("crash")
        if "crash" in whole:
            real["crash"] = whole["crash"]
        else:
            real.setdefault("notes", []).append(f"the script's end: {crash['message']}, with loaders cut short")
    if not review:
        review = {"notes": [f"the step: the script did not call backward, or the review not end, in {limit_s:g} s"]}
    return [review, real]


def _log_to(file: Path) -> None:
    """Sends what the script prints to a file."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))


def _stopped(script: Path, code: int | None, output: str) -> str:
    if not code:
        return f"{script.name}: the script ended without calling backward, so there is no training to review"
    last = " / ".join(line.strip() for line in output.strip().splitlines()[-_OUTPUT:])
    return f"{script.name}: the script stopped with exit code {code} before any training: {last}"


def _import_libraries(script: Path) -> None:
    """Imports what the script imports of installed libraries, once for all copies of this process."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # matplotlib asks when it is imported
    for node in source.tree(str(script)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            full = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in full if not getattr(node, "level", 0) else ():
                _import(name)


def _import(name: str) -> None:
    try:
        spec = find_spec(name.partition(".")[0])
        if spec is not None and spec.origin and not source.is_user(spec.origin):
            importlib.import_module(name)
    except Exception:  # noqa: S110  # the script itself will tell
        pass
