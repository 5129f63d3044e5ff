"""What the report shows of statistics.csv."""

import math

from playbook.insight.report import statistics
from playbook.insight.report.blocks import Chart, Table
from playbook.insight.report.curves import Curve


def observed(num_layers: int) -> dict[str, Curve]:
    steps = [0.0, 50.0, 100.0]
    curves: dict[str, Curve] = {"gradient_norm": (steps, [9.0, 9.0, 9.0])}
    for number in range(num_layers):
        curves |= {
            f"gradient_norm/{number}": (steps, [1.0 + number, math.inf, 0.5]),
            f"weight_norm/{number}": (steps, [2.0, 2.0, 3.0]),
            f"update_ratio/{number}": (steps, [0.0, 1e-2, 1e-3]),
        }
    return {**curves, "dead_units/act": (steps, [0.0, 0.0, 0.25])}


def test_charts_are_logarithmic_and_the_table_has_each_layer() -> None:
    norms, ratios, table = statistics.blocks(observed(2))
    assert isinstance(norms, Chart)
    assert isinstance(ratios, Chart)
    assert isinstance(table, Table)
    assert norms.alt == "0 from 1 to 0.5; 1 from 2 to 0.5", "a value that is not finite has no place"
    assert ratios.alt == "0 from 0.01 to 0.001; 1 from 0.01 to 0.001"
    assert table.rows[1] == {
        "layer": "1",
        "gradient norm": 0.5,
        "weight norm": 3.0,
        "update ratio": 1e-3,
        "median update ratio": 1e-3,
    }
    assert table.rows[2]["layer"] == "act"
    assert table.rows[2]["dead units"] == "25%"


def test_many_layers_are_sampled_over_the_depth() -> None:
    norms, _, table = statistics.blocks(observed(26))
    assert isinstance(norms, Chart)
    assert isinstance(table, Table)
    assert norms.title == "Gradient norm, before clipping (6 of 26 layers)"
    assert [part.partition(" ")[0] for part in norms.alt.split("; ")] == ["0", "5", "10", "15", "20", "25"]
    assert len(table.rows) == 27


def test_one_observation_is_a_table_and_none_is_nothing() -> None:
    [table] = statistics.blocks({"gradient_norm/a": ([0.0], [2.0])})
    assert isinstance(table, Table)
    assert table.rows == [{"layer": "a", "gradient norm": 2.0, "weight norm": None, "update ratio": None}]
    assert statistics.blocks({}) == []
