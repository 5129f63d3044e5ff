"""Options of a review: which defects it looks for, and the thresholds of its probes."""

import inspect
from collections.abc import Iterator

from torchdoctor.errors import ReviewError, nearest
from torchdoctor.findings import SEVERITIES
from torchdoctor.probe import Look
from torchdoctor.registry import all_defects, all_probes, choose_thresholds


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
    """Sets thresholds of probes for this process, as {"dead_units.most": 0.7}; all others get their defaults.

    Raises:
        ReviewError: no probe has such a threshold.
    """
    known = {f"{probe}.{name}": kind for probe, each in all_probes().items() for name, kind in _thresholds(each.look)}
    chosen: dict[str, dict[str, float]] = {}
    for option, value in thresholds.items():
        if option not in known:
            raise ReviewError(
                f"--thresholds {option}: no such threshold{nearest(option, known)}; all: {', '.join(known)}"
            )
        probe, _, name = option.partition(".")
        chosen.setdefault(probe, {})[name] = known[option](value)
    choose_thresholds(chosen)


def _thresholds(look: Look) -> Iterator[tuple[str, type[int] | type[float]]]:
    """The arguments of a probe's function with a number as their default, and its type."""
    for name, parameter in inspect.signature(look).parameters.items():
        if type(parameter.default) in (int, float):
            yield name, type(parameter.default)
