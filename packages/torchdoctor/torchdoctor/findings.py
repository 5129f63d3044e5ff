"""Defects, findings and what could not be checked."""

import linecache
import os
import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Severity = Literal["critical", "warning", "advice"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "advice")

# what a poor start of training looks like: a defect of the data or of the loss causes all of it
POOR_START = ("bad-initial-loss", "loss-not-decreasing", "learning-rate-too-high", "exploding-gradient")


class Evidence(NamedTuple):
    """The kind of evidence behind a finding.

    Args:
        kind: measured in the program as it runs, shown by an experiment (one thing was changed, the effect compared),
            or read from the source.
        text: what was done.
    """

    kind: Literal["measured", "experiment", "source"]
    text: str


STEP = Evidence("measured", "the calls of a training step were recorded")
TRAINING = Evidence("measured", "a few training steps were run and watched")
RUN = Evidence("measured", "the program was run as it is")
LOADER = Evidence("measured", "the samples of an epoch were read and counted")


@dataclass(frozen=True)
class Defect:
    """A kind of defect, declared by the file that looks for it.

    Args:
        id: what users write in `--only`, `--skip` and `# doctor: ignore[id] reason`.
        severity: critical, warning or advice.
        impact: sentence that says what the defect leads to.
        section: of the report, in which it stands unless it is critical.
        explains: ids of its consequences, which are not reported when it is found.
        covers: ids that are not reported at the same line.
        long: whether looking for it trains for many steps or reads much data; `quick_ids` leaves it out.
        shown_by: how a finding of it was established.
    """

    id: str
    severity: Severity
    impact: str
    section: Literal["Practices", "Performance", "Code quality"] = "Practices"
    explains: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    long: bool = False
    shown_by: Evidence = STEP


class Place(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The line itself, without its indentation."""
        return linecache.getline(self.file, self.line).strip()

    def seen_from(self, other: "Place") -> str:
        """A short reference from another line: `line 5` in the same file, `train.py:5` elsewhere."""
        return f"line {self.line}" if self.file == other.file else f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True)
class Finding:
    """A defect found at a line.

    Args:
        defect: its kind.
        place: the line to change, as far as it is known.
        message: what was measured, with the figures.
        fix: the change as code, in the user's own names.
        values: what the repair of the source needs to know: as `variant`, which of several is meant, and values by the
            names that `repairs/edits.py` has in braces.
    """

    defect: Defect
    place: Place | None
    message: str
    fix: str
    values: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        place = self.place or Place("", 0)
        return {
            "id": self.defect.id,
            "severity": self.defect.severity,
            "file": place.file,
            "line": place.line,
            "code": place.code,
            "message": self.message,
            "impact": self.defect.impact,
            "fix": _indexed(self.fix),
            "values": {name: _indexed(value) for name, value in self.values.items()},
            "shown_by": self.defect.shown_by._asdict(),
        }


@dataclass(frozen=True)
class NotLookedAt:
    """A defect that a probe could not check for here.

    Args:
        defect: its kind.
        reason: what the probe lacked, as the report has it after "Not looked at".
    """

    defect: Defect
    reason: str

    def __str__(self) -> str:
        return f"{self.defect.id}: {self.reason}"


def _indexed(code: str) -> str:
    """Code in which numbers among the names of modules are indices: `self.net.0.bias` is `self.net[0].bias`."""
    return re.sub(r"\bself(\.\w+)+", lambda path: re.sub(r"\.(\d+)\b", r"[\1]", path[0]), code)


def is_grave(item: dict[str, Any]) -> bool:
    """Whether a finding, as JSON has it, is a warning or critical."""
    return item["severity"] != "advice"
