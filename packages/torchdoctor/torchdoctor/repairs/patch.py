"""Patches of findings as unified diffs, and the second review that a patch must pass before it is written."""

import difflib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchdoctor import source
from torchdoctor.evidence import failure
from torchdoctor.findings import is_grave
from torchdoctor.repairs.edits import repair
from torchdoctor.report import APPLIED, Report
from torchdoctor.scripts.folder import Copy

_START = (failure.MISSING_SUPER_INIT.id, "crash")  # found by running the program at all
_LIMIT_S = 900.0

Again = Callable[[dict[Path, str]], Report]


class TrialError(Exception):
    """The second review did not come to its end."""


def with_patches(report: Report) -> Report:
    """The report with a `patch` in each finding: a diff relative to the current folder, empty if no edit is sure."""
    return replace(report, findings=[item | {"patch": _diff_of(item)} for item in report.findings])


def _diff_of(finding: dict[str, Any]) -> str:
    path = _own_file(finding)
    text = _read(path) if path is not None else None
    new = repair(text, finding) if text is not None else None
    return "" if path is None or text is None or new is None else diff(_name(path), text, new)


def diff(name: str, old: str, new: str) -> str:
    """A unified diff that `git apply` and `patch -p1` accept.

    Args:
        name: of the file, relative to the folder in which the diff is applied.
        old: its text.
        new: what it becomes.
    """
    before, after = (list(io.StringIO(text, newline="")) for text in (old, new))
    end = "\t" if " " in name else ""  # without it patch would read the name up to the space
    lines = difflib.unified_diff(before, after, f"a/{name}{end}", f"b/{name}{end}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _own_file(finding: dict[str, Any]) -> Path | None:
    """The finding's file, if it lies in the current folder and is the user's own."""
    if not finding["file"] or not source.is_user(finding["file"]):
        return None
    path = Path(finding["file"]).resolve()
    return path if path.is_relative_to(Path.cwd().resolve()) else None


def _name(path: Path) -> str:
    return path.relative_to(Path.cwd().resolve()).as_posix()


def _read(path: Path) -> str | None:
    """A file's text with its own line ends; None if it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write_whole(path: Path, text: str) -> None:
    """Writes a file beside the old one and renames it, so that a crash loses neither; its permissions stay."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(text.encode())
        beside.chmod(path.stat().st_mode)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


@dataclass
class _Trials:
    """Patches that were tried one after another, each on top of those that helped.

    Args:
        again: reviews the program with other texts of its files.
        report: the latest that counts.
        texts: of the files that patches have changed so far.
        outcomes: what became of the findings, by id, file and code.
    """

    again: Again
    report: Report
    texts: dict[Path, str] = field(default_factory=dict)
    outcomes: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def run(self) -> None:
        while finding := next((item for item in self.report.findings if _key(item) not in self.outcomes), None):
            self.outcomes[_key(finding)] = self._try(finding)

    def _try(self, finding: dict[str, Any]) -> str:
        path = _own_file(finding)
        text = self.texts.get(path) or _read(path) if path is not None else None
        new = repair(text, finding) if text is not None else None
        if path is None or new is None:
            return ""
        print(f"trying the patch of {finding['id']} at {_name(path)}:{finding['line']}", file=sys.stderr, flush=True)
        try:
            later = self.again(self.texts | {path: new})
        except TrialError as error:
            return f"not written: {error}"
        if reason := _objection(finding["id"], self.report, later):
            return f"not written: {reason}"
        self.texts[path], self.report = new, later
        return APPLIED


def _key(finding: dict[str, Any]) -> tuple[str, str, str]:
    return finding["id"], finding["file"], finding["code"]


def _objection(defect: str, before: Report, after: Report) -> str:
    """Why a patch does not help, if so: a second review finds the defect as often as before, or others."""
    counts, later = (Counter(item["id"] for item in report.findings) for report in (before, after))
    missed = sorted({*before.looked_for} - {*after.looked_for})
    for name in later:
        item = next(item for item in after.findings if item["id"] == name)
        is_new = name in (*before.looked_for, "crash") and later[name] > counts[name] and name != defect
        if is_new and is_grave(item):
            return f"a second review then finds {name}: {item['message']}"
    if later[defect] >= counts[defect]:
        return "a second review still finds it"
    looked = defect in after.looked_for or (defect in _START and after.looked_for)
    if not looked or missed:
        return f"a second review could not look for {', '.join([] if looked else [defect]) or ', '.join(missed)}"
    return ""


def write_patches(report: Report, again: Again) -> Report:
    """Tries the patch of every finding, and writes those that help to the user's files.

    Args:
        report: of the review, with patches.
        again: reviews the program with other texts of its files; raises TrialError if it cannot.

    Returns:
        The report with the outcome of each finding as its `trial`, in words.
    """
    originals = {path: _read(path) for item in report.findings if (path := _own_file(item)) is not None}
    trials = _Trials(again, report)
    trials.run()
    gone = {path for path in trials.texts if _read(path) != originals.get(path)}
    for path, text in trials.texts.items():
        if path not in gone:
            write_whole(path, text)
    return replace(report, findings=[item | {"trial": _outcome(item, trials, gone)} for item in report.findings])


def _outcome(finding: dict[str, Any], trials: _Trials, changed: set[Path]) -> str:
    if not finding["patch"]:
        return ""
    outcome = trials.outcomes.get(_key(finding), "not needed: another patch has removed the finding")
    if outcome == APPLIED and _own_file(finding) in changed:
        return "not written: the file was changed during the review"
    return outcome


def reviewer(command: list[str]) -> Again:
    """Repeats a review by its command, in a copy of the current folder.

    Args:
        command: after the name of the Python interpreter; it prints the report as JSON.
    """

    def again(texts: dict[Path, str]) -> Report:
        with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as folder:
            here, scratch = Path.cwd().resolve(), Path(folder).resolve()
            copy = Copy(here, scratch / "tree")
            for path, text in texts.items():
                _put(copy.folder, path.relative_to(here), text)
            paths = [Path(entry or ".").resolve() for entry in sys.path]
            own = [copy.folder / path.relative_to(here) for path in paths if path.is_relative_to(here)]
            outer = os.environ.get("PYTHONPATH", "")
            env = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, own), *filter(None, [outer])])}
            env["PYTHONDONTWRITEBYTECODE"] = "1"
            answer = _run(command, copy.folder, env)
            findings, looked_for = copy.restored(answer["findings"]), answer["looked_for"]
            return Report(findings, answer["checked"], answer["notes"], looked_for)

    return again


def _put(folder: Path, name: Path, text: str) -> None:
    """Writes a file in a copy, in which folders may be links to the originals."""
    inner = folder
    for part in name.parent.parts:
        inner = inner / part
        if inner.is_symlink():
            original = inner.resolve()
            inner.unlink()
            inner.mkdir()
            for entry in original.iterdir():
                if entry.name != "__pycache__":
                    (inner / entry.name).symlink_to(entry)
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_bytes(text.encode())


def _run(command: list[str], folder: Path, env: dict[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise TrialError(f"a second review took more than {_LIMIT_S:g} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise TrialError(f"a second review ended with exit code {done.returncode}: {last}") from None
