"""The section on speed, from what metrics.json may hold."""

from playbook.insight.report import speed
from playbook.insight.report.blocks import Chart, Table, Text

SPEED = {
    "bound_by": "data",
    "advice": "64% of the time waits for the loader with 2 workers; --data.num_workers 4",
    "notes": ["growing memory: 2 MiB a step"],
    "shares": {"data": 0.64, "forward": 0.3, "backward": 0.06},
    "steps_per_second": 12.345,
    "step_ms": {"median": 10.0, "p95": 12.0, "p99": 20.0},
    "wait_ms": {"median": 64.0, "p95": 70.0, "p99": 80.0},
    "durations_ms": [[0, 9.0], [10, 11.0], [20, 10.0]],
    "memory_mib": {"process": [[10, 512.0], [20, 540.0]], "device": [[10, 100.0], [20, 100.0]]},
    "ranks_ms": [{"forward": 10.0, "backward": 50.0}, {"forward": 40.0, "backward": 20.0, "callbacks": 1.0}],
    "device_shares": {"forward": 0.2, "backward": 0.05},
}


def test_all_that_there_is() -> None:
    blocks = speed.blocks(SPEED)
    texts = [block.text for block in blocks if isinstance(block, Text)]
    assert texts[0] == "Bound by data: 64% of the time waits for the loader with 2 workers; --data.num_workers 4."
    assert texts[1] == "Growing memory: 2 MiB a step."
    assert texts[2] == (
        "12.35 steps a second; the median step took 10 ms, 1 of 20 more than 12 ms; the median wait for a batch was 64 "
        "ms, 1 of 20 longer than 70 ms."
    )
    charts = {block.title: block for block in blocks if isinstance(block, Chart)}
    assert charts["Where the time went"].alt == "data 64%, forward 30%, backward 6%"
    assert charts["Time between CUDA events, of the whole"].alt == "forward 20%, backward 5%"
    assert charts["Duration of steps"].alt == "Steps take 9 to 11 ms, the median 10"
    assert charts["Memory in use"].alt == "Memory of the process from 512 to 540 MiB, device from 100 to 100 MiB"
    (table,) = [block for block in blocks if isinstance(block, Table)]
    assert table.columns == ["rank", "forward", "backward", "callbacks"]
    assert table.rows[0] == {"rank": 0, "forward": 10.0, "backward": 50.0, "callbacks": None}


def test_a_run_of_an_older_version_has_less() -> None:
    older = {name: SPEED[name] for name in ("bound_by", "advice", "shares", "steps_per_second")}
    blocks = speed.blocks({**older, "step_ms": {"median": 10.0, "p95": 12.0}})
    assert [type(block) for block in blocks] == [Text, Text, Chart]
    assert speed.blocks({}) == []


def test_the_bar_has_as_many_parts_as_there_are_colours() -> None:
    shares = {f"part {number}": 0.1 for number in range(10)}
    chart = speed.chart_of_shares("Parts", shares)
    assert chart.svg.count("part ") == 5
    assert "the rest 50 %" in chart.svg
    assert chart.alt.count("10%") == 10, "the text has all"
