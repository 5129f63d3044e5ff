"""Series of many values keep some of them."""

import pytest

from playbook.training import series as many
from playbook.training.series import Series


def test_a_series_keeps_evenly_spaced_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "MOST_NOTED", 4)
    series: Series[int] = Series()
    for step in range(0, 100, 10):
        series.add(step, -step)
    assert series.steps == [0, 40, 80]
    assert series.values == [0, -40, -80]
