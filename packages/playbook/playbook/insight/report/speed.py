"""The section on speed: what bounded the training, where its time went, how steps and memory went. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from playbook import charts
from playbook.insight.report.blocks import Block, Chart, Table, Text, cell

MOST_PARTS = len(charts.SERIES)  # of the bar, one colour each
REST = "the rest"


def blocks(speed: Mapping[str, Any]) -> list[Block]:
    """What there is of a training's speed.

    Args:
        speed: of `metrics.json`; empty of a training that was too short. One of an older run has less in it.
    """
    if not speed:
        return []
    content: list[Block] = [Text(f"Bound by {speed['bound_by']}: {speed['advice']}.")]
    content += [Text(f"{note[0].upper()}{note[1:]}.") for note in speed.get("notes", ())]
    content.append(Text(_pace(speed)))
    content.append(chart_of_shares("Where the time went", speed["shares"]))
    if device := speed.get("device_shares"):
        content.append(chart_of_shares("Time between CUDA events, of the whole", device))
    if durations := speed.get("durations_ms"):
        content.append(_durations(durations, speed["step_ms"]))
    if memory := speed.get("memory_mib"):
        content.append(_memory(memory))
    if ranks := speed.get("ranks_ms"):
        content.append(_ranks(ranks))
    return content


def _pace(speed: Mapping[str, Any]) -> str:
    step = speed["step_ms"]
    text = f"{cell(speed['steps_per_second'])} steps a second; the median step took {cell(step['median'])} ms, "
    text += f"1 of 20 more than {cell(step['p95'])} ms"
    if wait := speed.get("wait_ms"):
        text += (
            f"; the median wait for a batch was {cell(wait['median'])} ms, 1 of 20 longer than {cell(wait['p95'])} ms"
        )
    return text + "."


def chart_of_shares(title: str, shares: Mapping[str, float]) -> Chart:
    """A bar of the largest parts, in percent.

    Args:
        title: of the chart.
        shares: of each part in the time.
    """
    largest = dict(sorted(shares.items(), key=lambda entry: -entry[1]))
    shown = dict(list(largest.items())[: MOST_PARTS - (len(largest) > MOST_PARTS)])
    if len(shown) < len(largest):
        shown[REST] = sum(largest.values()) - sum(shown.values())
    svg = charts.stacked_bar({part: 100 * share for part, share in shown.items()}, "%")
    return Chart(title, svg, ", ".join(f"{part} {share:.0%}" for part, share in largest.items()))


def _durations(durations: Sequence[Sequence[float]], step: Mapping[str, float]) -> Chart:
    numbers, values = zip(*durations, strict=True)
    svg = charts.points(numbers, values, "step", "ms", level=(step["median"], "median"))
    return Chart(
        "Duration of steps",
        svg,
        f"Steps take {min(values):.3g} to {max(values):.3g} ms, the median {step['median']:.3g}",
    )


def _memory(memory: Mapping[str, Sequence[Sequence[float]]]) -> Chart:
    curves = {name: tuple(zip(*samples, strict=True)) for name, samples in memory.items()}
    told = ", ".join(f"{name} from {mib[0]:,.0f} to {mib[-1]:,.0f} MiB" for name, (_, mib) in curves.items())
    return Chart("Memory in use", charts.lines(curves, "step", "MiB", from_zero=True), f"Memory of the {told}")  # type: ignore[arg-type]


def _ranks(ranks: Sequence[Mapping[str, float]]) -> Table:
    parts = dict.fromkeys(part for rank in ranks for part in rank)
    rows = [{"rank": number, **{part: rank.get(part) for part in parts}} for number, rank in enumerate(ranks)]
    return Table("Milliseconds of a step in each process", rows)
