"""The report of a review, without consequences of other findings and accepted ones."""

from dataclasses import dataclass, field, replace
from typing import Any

from torchdoctor.findings import SEVERITIES, Place, is_grave
from torchdoctor.registry import all_defects

APPLIED = "applied: the finding is gone in a second review"


@dataclass
class Report:
    """What the review of one program found.

    Args:
        findings: as Finding.as_dict has them, each with its probe; the severest first. On a command line each also has
            its `patch`, a diff, and after `--fix` a `trial`, what became of the patch.
        checked: what was looked at and is as it should be, a sentence each.
        notes: what could not be looked at, and why.
        looked_for: ids of the defects whose probes ran to their end.
        ruled_out: ids of the defects that a check which passed could have shown.
        overview: what the program trains, on what and with what, a sentence each.
        model: what the program calls its largest model.
        advice: what the source suggests, as `practices.advise` has it, after the changes that `gains` has tried.
        seconds: how long it took.
    """

    findings: list[dict[str, Any]] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    looked_for: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    overview: list[str] = field(default_factory=list)
    model: str = "model"
    advice: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_critical(self) -> bool:
        """Whether a critical finding is left."""
        return any(item["severity"] == "critical" and item.get("trial") != APPLIED for item in self.findings)


def select_findings(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings that are reported, the severest first.

    Left out are consequences of other findings, repetitions and what another one covers at the same line, and what the
    user accepts by `# doctor: ignore[id] reason` at the line or alone above it.
    """
    defects = all_defects()
    explained = {name for item in filter(is_grave, findings) for name in defects[item["id"]].explains}
    covered = {(name, *_line(item)) for item in findings for name in defects[item["id"]].covers}
    by_line: dict[tuple[str, str, int], dict[str, Any]] = {}
    for item in findings:
        if item["id"] not in explained and (item["id"], *_line(item)) not in covered:
            by_line.setdefault((item["id"], *_line(item)), item)
    reported = [item for item in by_line.values() if not is_accepted(Place(*_line(item)), item["id"])]
    return sorted(reported, key=lambda item: (SEVERITIES.index(item["severity"]), item["file"], item["line"]))


def select_advice(report: Report, only: str | None, severity: str) -> Report:
    """The report without advice on the source, where `--only` or `--severity` ask for less than everything."""
    return report if severity == "advice" and not only else replace(report, advice=[])


def _line(item: dict[str, Any]) -> tuple[str, int]:
    return item["file"], item["line"]


def is_accepted(place: Place, name: str) -> bool:
    """Whether the user accepts a defect or advice of this id at a line, or in a comment alone above it."""
    above = Place(place.file, place.line - 1).code
    return _accepts(place.code, name) or (above.startswith("#") and _accepts(above, name))


def _accepts(text: str, defect: str) -> bool:
    _, mark, rest = text.partition("# doctor: ignore[")
    names, _, reason = rest.partition("]")
    return bool(mark and reason.strip()) and defect in [name.strip() for name in names.split(",")]
