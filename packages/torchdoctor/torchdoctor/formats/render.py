"""Shows a report: on a terminal, as JSON, Markdown or SARIF."""

import json
import os
import textwrap
from typing import Any

from torchdoctor.advice import practices
from torchdoctor.advice.tests import propose
from torchdoctor.findings import SEVERITIES
from torchdoctor.formats import sarif
from torchdoctor.registry import all_defects, all_probes
from torchdoctor.report import APPLIED, Report

SECTIONS = ("Critical issues", "Performance", *practices.SECTIONS)
_KINDS = {"measured": "measurement", "experiment": "an experiment", "source": "the source"}
_MOST_RIGHT = 10  # checks that passed, unless all are asked for
_LATE = ("took more than", "no time was left")  # what sandboxes say of probes that were not done


def render(report: Report, form: str, title: str, writes_tests: bool = True, shows_all: bool = False) -> str:
    """The report as text.

    Args:
        report: of one program.
        form: terminal, json, markdown or sarif.
        title: what was reviewed.
        writes_tests: whether `--write-tests` is an option of the review.
        shows_all: whether all checks that passed are shown, and not the ten that matter most; JSON has all of them.
    """
    if form == "json":
        shown = {name: getattr(report, name) for name in ("findings", "checked", "notes", "looked_for", "advice")}
        header = {"title": title, "overview": report.overview, "verdict": verdict(report), **shown}
        tests = [test._asdict() for test in propose(report)]
        return json.dumps({**header, "tests": tests, "seconds": round(report.seconds, 2)}, indent=1)
    if form == "sarif":
        return sarif.as_text(report, title)
    if form == "markdown":
        return _markdown(report, title, shows_all)
    return _terminal(report, title, writes_tests, shows_all)


def summary(report: Report) -> str:
    """How many findings of which severity: «2 critical, 1 warning», or «nothing found»."""
    counts = {name: sum(item["severity"] == name for item in report.findings) for name in SEVERITIES}
    texts = [f"{count} {name}" for name, count in counts.items() if count]
    trials = [item["trial"] for item in report.findings if item.get("trial")]
    texts += [f"{trials.count(APPLIED)} of {len(trials)} patches written"] if trials else []
    return ", ".join(texts) or "nothing found"


def verdict(report: Report) -> str:
    """What follows from the findings, in a sentence."""
    remaining = [item for item in report.findings if item.get("trial") != APPLIED]
    critical, warnings = (sum(item["severity"] == name for item in remaining) for name in ("critical", "warning"))
    if critical:
        return f"Do not trust its results before the critical {'issue is' if critical == 1 else 'issues are'} repaired."
    if warnings:
        some = "a warning" if warnings == 1 else f"{warnings} warnings"
        return f"Nothing critical was found; {some} may cost quality or time."
    return f"Nothing was found; {len(report.checked)} checks passed." if report.checked else ""


def _sections(report: Report) -> dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]]:
    """Findings, and the advice on the source, by section."""
    findings: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    for item in report.findings:
        is_critical = item["severity"] == "critical"
        findings["Critical issues" if is_critical else all_defects()[item["id"]].section].append(item)
    advice = {name: [item for item in report.advice if item["section"] == name] for name in SECTIONS}
    sections = {name: (findings[name], list(practices.lines_of(advice[name], _relative))) for name in SECTIONS}
    return {name: both for name, both in sections.items() if any(both)}


def _right(report: Report, shows_all: bool) -> list[str]:
    """The checks that passed, those that matter most first."""
    rest = 0 if shows_all else len(report.checked) - _MOST_RIGHT
    return report.checked if rest <= 0 else [*report.checked[:_MOST_RIGHT], f"and {rest} more, which --all shows"]


def _where(item: dict[str, Any]) -> str:
    return f"{_relative(item['file'])}:{item['line']}" if item["file"] else "no line of the program's own"


def _relative(file: str) -> str:
    path = os.path.relpath(file)
    return file if path.startswith("..") else path


def _shown_by(item: dict[str, Any]) -> str:
    return f"{_KINDS[item['shown_by']['kind']]}: {item['shown_by']['text']}"


def _patched(item: dict[str, Any]) -> str:
    """What became of a finding's patch."""
    return item.get("trial") or "not tried; `--fix` writes it if a second review shows that it helps"


def not_looked_at(notes: list[str]) -> list[str]:
    """The notes of a review in which each reason stands once, before the defects that were not looked for."""
    reasons: dict[str, list[str]] = {}
    for note in notes:
        names, _, reason = note.partition(": ")
        known = [_ids_of(name) for name in names.split(", ")]
        ids = [name for some in known for name in some]
        if not all(known):
            reasons.setdefault(note, [])
        else:
            reasons.setdefault("not done in time" if reason.startswith(_LATE) else reason, []).extend(ids)
    return [reason + (f": {', '.join(dict.fromkeys(ids))}" if ids else "") for reason, ids in reasons.items()]


def _ids_of(name: str) -> list[str]:
    """Of a probe's defects, or of a defect alone."""
    probe = all_probes().get(name)
    return sorted(probe.ids) if probe is not None else [name] if name in all_defects() else []


def _terminal(report: Report, title: str, writes_tests: bool, shows_all: bool) -> str:
    lines = [f"{title} · {summary(report)} · {len(report.checked)} checks passed · {report.seconds:.1f} s"]
    if report.overview:
        lines += ["", *textwrap.wrap(" ".join([*report.overview, verdict(report)]), 112)]
    for name, (items, advice) in _sections(report).items():
        lines += ["", name]
        for item in items:
            lines += ["", f"  {item['severity']}  {item['id']}  {_where(item)}"]
            if item["code"]:
                lines.append(f"      {item['code']}")
            lines += _wrapped("wrong", item["message"])
            lines += _wrapped("shown by", _shown_by(item))
            lines += _wrapped("cost", item["impact"])
            if item.get("patch"):
                lines += _wrapped("patch", _patched(item))
                lines += [f"      {line}" for line in item["patch"].splitlines()]
            else:
                lines += _wrapped("fix", item["fix"])
        lines += [""] if items and advice else []
        lines += [line for kind, text in advice for line in _item(f"{kind}  {text}")]
    if report.checked:
        lines += ["", "Checked and right", *(f"  {text}" for text in _right(report, shows_all))]
    if tests := propose(report):
        more = "; --write-tests tests/test_review.py writes those of this review" if writes_tests else ""
        lines += ["", f"Tests to write{more}"]
        lines += [line for test in tests for line in (f"  {test.name}", f"      {test.assertion}")]
    if report.notes:
        lines += ["", "Not looked at", *(line for text in not_looked_at(report.notes) for line in _item(text))]
    return "\n".join(lines)


def _wrapped(label: str, text: str) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(
        text, 112, initial_indent=f"    {label:<10}", subsequent_indent=" " * 14, break_long_words=False
    )


def _item(text: str) -> list[str]:
    return textwrap.wrap(text, 112, initial_indent="  ", subsequent_indent="    ", break_long_words=False)


def _markdown(report: Report, title: str, shows_all: bool) -> str:
    lines = [f"# Review of {title}", "", f"{summary(report)}; {len(report.checked)} checks passed."]
    if report.overview:
        lines += ["", "## Summary", "", " ".join([*report.overview, verdict(report)])]
    for name, (items, advice) in _sections(report).items():
        lines += ["", f"## {name}"]
        for item in items:
            lines += ["", f"### {item['id']} ({item['severity']}), `{_where(item)}`", ""]
            lines += [f"```python\n{item['code']}\n```", ""] if item["code"] else []
            lines += [f"- Wrong: {item['message']}", f"- Shown by {_shown_by(item)}", f"- Cost: {item['impact']}"]
            if item.get("patch"):
                lines += [f"- Patch: {_patched(item)}", "", f"```diff\n{item['patch'].rstrip()}\n```"]
            elif item["fix"]:
                lines += ["- Fix:", "", f"```python\n{item['fix']}\n```"]
        lines += ["", *(f"- `{kind}` {text}" for kind, text in advice)] if advice else []
    tests = [f"`{test.name}`: `{test.assertion}`" for test in propose(report)]
    last = {"Checked and right": _right(report, shows_all), "Tests to write": tests}
    for name, texts in (last | {"Not looked at": not_looked_at(report.notes)}).items():
        lines += ["", f"## {name}", "", *(f"- {text}" for text in texts)] if texts else []
    return "\n".join(lines)
