"""The curves of a run, from its metrics.csv. Imports no torch."""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playbook import charts
from playbook.insight.report.blocks import Block, Chart, Table

MOST_POINTS = 400  # of a curve: each is the mean of as many neighbours as needed
MOST_CHARTS = 12
SPEED = "speed/"  # begins the names of what the report's section on speed shows
Curve = tuple[list[float], list[float]]


def read(path: Path) -> dict[str, Curve]:
    """Step and value of each metric, not finite values included; a damaged line is left out.

    Args:
        path: of metrics.csv; there need not be one.
    """
    curves: dict[str, Curve] = {}
    if not path.is_file():
        return curves
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        step_column = names.index("step") if "step" in names else -1
        for row in rows:
            if step_column < 0 or len(row) != len(names) or not row[step_column].isdigit():
                continue
            step = float(row[step_column])
            for name, value in _values(names, row):
                steps, values = curves.setdefault(name, ([], []))
                steps.append(step)
                values.append(value)
    return curves


def _values(names: list[str], row: list[str]) -> Iterator[tuple[str, float]]:
    for name, text in zip(names, row, strict=True):
        if text and name not in ("epoch", "step"):
            try:
                yield name, float(text)
            except ValueError:  # text that somebody has logged
                continue


def thinned(curve: Curve) -> Curve:
    """At most MOST_POINTS points: means of neighbours, of what is finite."""
    steps, values = curve
    every = math.ceil(len(steps) / MOST_POINTS)
    if every <= 1:
        return curve
    parts = [slice(start, start + every) for start in range(0, len(steps), every)]
    return [steps[part][-1] for part in parts], [_mean(values[part]) for part in parts]


def _mean(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def blocks(curves: dict[str, Curve], best_step: int | None) -> list[Block]:
    """A chart for each quantity, with its stages; of many, the first, and a table of the others' last values.

    Args:
        curves: as `read` returns them.
        best_step: of best.ckpt, marked in each chart.
    """
    groups: dict[str, dict[str, Curve]] = {}
    for name, curve in curves.items():
        stage, quantity = split_stage(name)
        if stage != "test" and not name.startswith(SPEED):
            groups.setdefault(quantity, {})[stage or name] = curve
    ordered = sorted(groups, key=lambda quantity: (-len(groups[quantity]), "loss" not in quantity))
    answer: list[Block] = []
    for quantity in ordered[:MOST_CHARTS]:
        shown = {stage: thinned(curve) for stage, curve in groups[quantity].items()}
        finite = [value for _, values in shown.values() for value in values if math.isfinite(value)]
        if not any(len(steps) > 1 for steps, _ in shown.values()) or not finite:
            continue
        is_loss = "loss" in quantity and min(finite) > 0 and max(finite) > 20 * min(finite)
        mark = None if best_step is None else (float(best_step), "best")
        svg = charts.lines(shown, "step", log_y=is_loss, mark=mark)
        answer.append(Chart(quantity, svg, _alt(groups[quantity])))
    rest = {name: curve for quantity in ordered[MOST_CHARTS:] for name, curve in groups[quantity].items()}
    last = {name: curve[1][-1] for name, curve in curves.items() if split_stage(name)[1] in ordered[MOST_CHARTS:]}
    if rest:
        rows = [{"metric": name, "last": value} for name, value in last.items()]
        answer.append(Table(f"Last values of {len(last):,} further metrics", rows))
    if faulty := [_faults(name, curve) for name, curve in curves.items() if not all(map(math.isfinite, curve[1]))]:
        answer.append(Table("Values that are not finite", faulty))
    return answer


def _faults(name: str, curve: Curve) -> dict[str, Any]:
    steps, values = curve
    faulty = [int(step) for step, value in zip(steps, values, strict=True) if not math.isfinite(value)]
    return {"metric": name, "not finite": len(faulty), "of": len(values), "first at step": faulty[0]}


def split_stage(name: str) -> tuple[str, str]:
    """Stage and quantity of a metric: ("val", "loss") of val/loss and val_loss; ("", name) of others."""
    match = re.match(r"(train|val|valid|validation|test)[/_](.+)$", name, re.DOTALL)
    if match is None:
        return "", name
    stage = "val" if match[1].startswith("val") else match[1]
    quantity = match[2].removesuffix("_epoch")
    return (f"{stage}, each step", quantity.removesuffix("_step")) if quantity.endswith("_step") else (stage, quantity)


def _alt(curves: dict[str, Curve]) -> str:
    ends = {name: (values[0], values[-1]) for name, (_, values) in curves.items() if values}
    return "; ".join(f"{name} from {first:.4g} to {last:.4g}" for name, (first, last) in ends.items())
