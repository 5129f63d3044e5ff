"""Shows a report: on a terminal, as JSON, Markdown or SARIF."""

import json
import os
import textwrap
from typing import Any

from playbook.doctor.findings import SEVERITIES
from playbook.doctor.registry import all_defects
from playbook.doctor.report import Report

SECTIONS = ("Critical issues", "Performance", "Practices", "Code quality")
_LEVELS = {"critical": "error", "warning": "warning", "advice": "note"}  # as SARIF calls them


def render(report: Report, form: str, title: str) -> str:
    """The report as text.

    Args:
        report: of one program.
        form: terminal, json, markdown or sarif.
        title: what was reviewed.
    """
    if form == "json":
        shown = {"title": title, "findings": report.findings, "checked": report.checked, "notes": report.notes}
        return json.dumps(shown | {"seconds": round(report.seconds, 2)}, indent=1)
    return {"terminal": _terminal, "markdown": _markdown, "sarif": _sarif}[form](report, title)


def summary(report: Report) -> str:
    """How many findings of which severity: «2 critical, 1 warning», or «nothing found»."""
    counts = {name: sum(item["severity"] == name for item in report.findings) for name in SEVERITIES}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing found"


def _sections(report: Report) -> dict[str, list[dict[str, Any]]]:
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    for item in report.findings:
        is_critical = item["severity"] == "critical"
        sections["Critical issues" if is_critical else all_defects()[item["id"]].section].append(item)
    return {name: items for name, items in sections.items() if items}


def _where(item: dict[str, Any]) -> str:
    return f"{_relative(item['file'])}:{item['line']}" if item["file"] else "no line of the program's own"


def _relative(file: str) -> str:
    path = os.path.relpath(file)
    return file if path.startswith("..") else path


def _terminal(report: Report, title: str) -> str:
    lines = [f"{title} · {summary(report)} · {len(report.checked)} checks passed · {report.seconds:.1f} s"]
    for name, items in _sections(report).items():
        lines += ["", name]
        for item in items:
            lines += ["", f"  {item['severity']}  {item['id']}  {_where(item)}"]
            if item["code"]:
                lines.append(f"      {item['code']}")
            for label, key in (("measured", "message"), ("impact", "impact"), ("fix", "fix"), ("probe", "probe")):
                lines += _wrapped(label, item.get(key, ""))
    if report.checked:
        lines += ["", "Good", *(f"  {text}" for text in report.checked)]
    if report.notes:
        lines += ["", "Not looked at", *(f"  {text}" for text in report.notes)]
    if report.checked:
        lines += ["", "Tests to add   --write-tests tests/test_review.py writes one for each thing that is good"]
    return "\n".join(lines)


def _wrapped(label: str, text: str) -> list[str]:
    if not text:
        return []
    return textwrap.wrap(
        text, 112, initial_indent=f"    {label:<10}", subsequent_indent=" " * 14, break_long_words=False
    )


def _markdown(report: Report, title: str) -> str:
    lines = [f"# Review of {title}", "", f"{summary(report)}; {len(report.checked)} checks passed."]
    for name, items in _sections(report).items():
        lines += ["", f"## {name}"]
        for item in items:
            lines += ["", f"### {item['id']} ({item['severity']}), `{_where(item)}`", ""]
            lines += [f"```python\n{item['code']}\n```", ""] if item["code"] else []
            lines += [f"{item['message']}. {item['impact']}"]
            lines += ["", f"Fix:\n```python\n{item['fix']}\n```"] if item["fix"] else []
    for name, texts in (("Good", report.checked), ("Not looked at", report.notes)):
        lines += ["", f"## {name}", "", *(f"- {text}" for text in texts)] if texts else []
    return "\n".join(lines)


def _sarif(report: Report, title: str) -> str:
    """SARIF 2.1.0 (OASIS 2020), as code-scanning services read it."""
    results = [
        {
            "ruleId": item["id"],
            "level": _LEVELS[item["severity"]],
            "message": {"text": f"{item['message']}. {item['impact']}"},
            "locations": [_location(item)] if item["file"] else [],
        }
        for item in report.findings
    ]
    rules = [{"id": name, "shortDescription": {"text": defect.impact}} for name, defect in all_defects().items()]
    driver = {"name": "playbook doctor", "rules": rules}
    run = {"tool": {"driver": driver}, "automationDetails": {"id": title}, "results": results}
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1)


def _location(item: dict[str, Any]) -> dict[str, Any]:
    region = {"startLine": max(1, item["line"]), "snippet": {"text": item["code"]}}
    artifact = {"uri": _relative(item["file"]).replace(os.sep, "/")}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}
