"""Options of a review: which defects it looks for, and the thresholds of its probes."""

import sys
from typing import Any

from torchdoctor.errors import ReviewError, nearest
from torchdoctor.findings import SEVERITIES
from torchdoctor.registry import all_defects, all_probes


def select_ids(only: str | None = None, skip: str | None = None, severity: str = "advice") -> frozenset[str]:
    """Ids of the defects to look for.

    Args:
        only: ids with commas between them; all when left out.
        skip: ids to leave out, likewise.
        severity: the least severe that is looked for.

    Raises:
        ReviewError: there is no such defect, or no such severity.
    """
    if severity not in SEVERITIES:
        raise ReviewError(f"--severity {severity}: expected one of {', '.join(SEVERITIES)}")
    severities = SEVERITIES[: SEVERITIES.index(severity) + 1]
    ids = (_split("only", only) or frozenset(all_defects())) - _split("skip", skip)
    return frozenset(name for name in ids if all_defects()[name].severity in severities)


def quick_ids() -> frozenset[str]:
    """Ids of the defects that a review finds without long trainings and without reading all data."""
    return frozenset(name for name, defect in all_defects().items() if not defect.long)


def _split(option: str, text: str | None) -> frozenset[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in all_defects():
            hint = nearest(name, all_defects()) or f", expected some of: {', '.join(all_defects())}"
            raise ReviewError(f"--{option} {name}: no such defect{hint}")
    return frozenset(names)


def set_thresholds(thresholds: dict[str, float]) -> None:
    """Sets constants of probes for this process, as {"dead_units.most": 0.7}.

    Raises:
        ReviewError: no probe has such a constant.
    """
    known: dict[str, tuple[Any, str]] = {}
    for probe, declared in all_probes().items():
        module = sys.modules[declared.look.__module__]
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, int | float):
                known[f"{probe}.{name.strip('_').lower()}"] = (module, name)
    for option, value in thresholds.items():
        if option not in known:
            raise ReviewError(
                f"--thresholds {option}: no such threshold{nearest(option, known)}; all: {', '.join(known)}"
            )
        module, name = known[option]
        setattr(module, name, type(getattr(module, name))(value))
