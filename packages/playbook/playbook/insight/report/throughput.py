"""The speed of a training over its steps, as metrics.csv has it. Imports no torch."""

from collections.abc import Mapping

from playbook import charts
from playbook.insight.report import curves
from playbook.insight.report.blocks import Block, Chart

TITLES = {
    "samples_per_second": "Samples a second",
    "data_wait": "Share of waiting for data",
    "mfu": "Use of the device's peak",
}


def blocks(logged: Mapping[str, curves.Curve]) -> list[Block]:
    """A chart of each quantity, where the training was long enough to note it twice.

    Args:
        logged: as `curves.read` returns it.
    """
    charted: list[Block] = []
    for name, title in TITLES.items():
        steps, values = logged.get(f"{curves.SPEED}{name}", ([], []))
        if len(steps) > 1:
            svg = charts.lines({title: curves.thinned((steps, values))}, "step")
            charted.append(Chart(title, svg, f"Between {min(values):.3g} and {max(values):.3g}"))
    return charted
