"""A report as SARIF 2.1.0 (OASIS 2020), as code-scanning services read it."""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchdoctor.findings import Place
from torchdoctor.registry import all_defects
from torchdoctor.report import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"critical": "error", "warning": "warning", "advice": "note"}
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? ")


def as_text(report: Report, title: str) -> str:
    """The report as SARIF, with paths relative to the repository around the current folder.

    A finding without a line stands at the first line of a reviewed script, or else among the tool's notifications:
    GitHub refuses results without a place.

    Args:
        report: of one program.
        title: what was reviewed; a path, for a script.
    """
    rules = [
        _rule(name, defect.impact, f" Shown by: {defect.shown_by.text}.", _LEVELS[defect.severity])
        for name, defect in all_defects().items()
    ]
    rules += [_rule(item["id"], item["text"], "", "note") for item in report.advice]
    script = title if Path(title).is_file() else ""
    placed = [item | {"file": item["file"] or script} for item in report.findings if item["file"] or script]
    unplaced = [item for item in report.findings if not (item["file"] or script)]
    notifications = [{"level": _LEVELS[item["severity"]], "message": {"text": _message(item)}} for item in unplaced]
    notifications += [{"level": "note", "message": {"text": f"not looked at: {note}"}} for note in report.notes]
    run = {
        "tool": {"driver": {"name": "torchdoctor", "rules": rules}},
        "automationDetails": {"id": f"torchdoctor/{title}/"},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, [rule["id"] for rule in rules]) for item in [*placed, *_advice(report)]],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(name: str, text: str, evidence: str, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "shortDescription": {"text": name},
        "fullDescription": {"text": text},
        "help": {"text": text + evidence},
        "defaultConfiguration": {"level": level},
    }


def _advice(report: Report) -> Iterator[dict[str, Any]]:
    """What the source suggests, and changes that were tried: a finding for each place."""
    for item in report.advice:
        for place in item["places"]:
            detail = f" ({place['detail']})" if place["detail"] else ""
            code = Place(place["file"], place["line"]).code
            shown = {"message": item["text"].rstrip(".") + detail, "impact": "", "fix": "", "code": code}
            yield {
                "id": item["id"],
                "severity": "advice",
                "shown_by": {"text": item.get("shown_by", "the source was read")},
                **place,
                **shown,
            }


def _message(item: dict[str, Any]) -> str:
    impact = f" {item['impact']}" if item["impact"] else ""
    return f"{item['message']}.{impact} Shown by: {item['shown_by']['text']}."


def _result(item: dict[str, Any], rules: list[str]) -> dict[str, Any]:
    artifact = {"uri": _uri(item["file"])}
    region = {"startLine": max(1, item["line"]), "snippet": {"text": item["code"]}}
    result = {
        "ruleId": item["id"],
        "ruleIndex": rules.index(item["id"]),
        "level": _LEVELS[item["severity"]],
        "message": {"text": _message(item) + (f" Fix: {item['fix']}" if item["fix"] else "")},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
    }
    if item.get("patch"):
        change = {"artifactLocation": artifact, "replacements": list(_replacements(item["patch"]))}
        text = item.get("trial") or "a patch that was not tried"
        result["fixes"] = [{"description": {"text": text}, "artifactChanges": [change]}]
    return result


def _uri(file: str) -> str:
    """A file's path from the repository's root, or a file URI if it lies elsewhere."""
    path, here = Path(file).resolve(), Path.cwd().resolve()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return quote(path.relative_to(root).as_posix()) if path.is_relative_to(root) else path.as_uri()


def _replacements(patch: str) -> Iterator[dict[str, Any]]:
    """The changes of a diff as whole lines that are deleted, and what stands there then."""
    line = 0  # of the old text
    lines = [text for text in patch.splitlines(keepends=True)[2:] if not text.startswith("\\")]
    for kind, group in groupby(lines, key=lambda text: "±" if text[0] in "+-" else text[0]):
        texts = list(group)
        if kind == "@" and (hunk := _HUNK.match(texts[-1])):
            line = int(hunk[1]) + (hunk[2] == "0")
        elif kind == "±":
            end = line + sum(text[0] == "-" for text in texts)
            region = {"startLine": line, "startColumn": 1, "endLine": end, "endColumn": 1}
            inserted = "".join(text[1:] for text in texts if text[0] == "+")
            yield {"deletedRegion": region, "insertedContent": {"text": inserted}}
            line = end
        else:
            line += len(texts)
