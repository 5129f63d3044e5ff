"""What the callback Statistics has observed of a training: charts and a table by layer. Imports no torch."""

import math
from collections.abc import Mapping, Sequence

from playbook import charts
from playbook.insight.report.blocks import Block, Chart, Table
from playbook.insight.report.curves import Curve, thinned

MOST_LINES = 6  # as many as there are colours
QUANTITIES = {"gradient_norm": "Gradient norm, before clipping", "update_ratio": "Update ratio, ‖Δw‖ / ‖w‖ of a step"}
COLUMNS = {"gradient_norm": "gradient norm", "weight_norm": "weight norm", "update_ratio": "update ratio"}


def blocks(curves: Mapping[str, Curve]) -> list[Block]:
    """Gradient norms and update ratios over the steps, and the last observation of each layer.

    Args:
        curves: of statistics.csv, by column; empty of a run that was not observed.
    """
    answer: list[Block] = []
    for quantity, title in QUANTITIES.items():
        by_layer = _by_layer(curves, quantity)
        shown = {layer: _positive(thinned(by_layer[layer])) for layer in _chosen(list(by_layer))}
        shown = {layer: curve for layer, curve in shown.items() if len(curve[0]) > 1}
        if not shown:
            continue
        rest = "" if len(shown) == len(by_layer) else f" ({len(shown)} of {len(by_layer)} layers)"
        svg = charts.lines(shown, "step", log_y=True)
        answer.append(Chart(f"{title}{rest}", svg, _alt(shown)))
    if rows := _rows(curves):
        answer.append(Table("Layers at the last observation; the median update ratio is that of all", rows))
    return answer


def _by_layer(curves: Mapping[str, Curve], quantity: str) -> dict[str, Curve]:
    prefix = f"{quantity}/"
    return {name.removeprefix(prefix): curve for name, curve in curves.items() if name.startswith(prefix)}


def _chosen(layers: Sequence[str]) -> list[str]:
    """Layers evenly over the depth, the first and the last one among them."""
    if len(layers) <= MOST_LINES:
        return list(layers)
    return [layers[round(number * (len(layers) - 1) / (MOST_LINES - 1))] for number in range(MOST_LINES)]


def _positive(curve: Curve) -> Curve:
    """What a logarithmic axis can show."""
    points = [(step, value) for step, value in zip(*curve, strict=True) if value > 0 and math.isfinite(value)]
    return [step for step, _ in points], [value for _, value in points]


def _alt(shown: Mapping[str, Curve]) -> str:
    return "; ".join(f"{layer} from {values[0]:.3g} to {values[-1]:.3g}" for layer, (_, values) in shown.items())


def _rows(curves: Mapping[str, Curve]) -> list[dict[str, object]]:
    by_quantity = {quantity: _by_layer(curves, quantity) for quantity in (*COLUMNS, "dead_units")}
    layers = dict.fromkeys(layer for by_layer in by_quantity.values() for layer in by_layer)
    rows: list[dict[str, object]] = []
    for layer in layers:
        row: dict[str, object] = {"layer": layer}
        for quantity, column in COLUMNS.items():
            curve = by_quantity[quantity].get(layer)
            row[column] = None if curve is None else curve[1][-1]
        if (ratios := by_quantity["update_ratio"].get(layer)) is not None:
            row["median update ratio"] = sorted(ratios[1])[len(ratios[1]) // 2]
        if (dead := by_quantity["dead_units"].get(layer)) is not None:
            row["dead units"] = f"{dead[1][-1]:.0%}"
        rows.append(row)
    return rows
