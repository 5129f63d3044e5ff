"""Bootstrap intervals, against the normal approximation."""

from pathlib import Path

import numpy as np
import pytest

from playbook.insight.report import intervals


def test_the_interval_is_that_of_the_normal_approximation() -> None:
    values = (np.arange(2000) % 5 < 4).astype(float)  # 80 % are right
    low, high = intervals.interval(values)
    half = 1.96 * np.sqrt(0.8 * 0.2 / 2000)
    assert (low, high) == pytest.approx((0.8 - half, 0.8 + half), abs=2e-3)
    assert intervals.interval(values) == (low, high), "the same every time"


def test_many_samples_are_not_drawn() -> None:
    values = np.arange(300_000) % 2.0
    low, high = intervals.interval(values)
    assert low < 0.5 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(300_000), rel=1e-6)


def test_samples_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text('id,accuracy,loss\n"a,b",1,0.5\nc,0,2\n')
    ids, samples = intervals.read_samples(tmp_path / "test.csv")
    assert ids == ["a,b", "c"]
    assert {name: values.tolist() for name, values in samples.items()} == {"accuracy": [1, 0], "loss": [0.5, 2]}
    assert intervals.read_samples(tmp_path / "other.csv") == ([], {})
    for text in ("id,accuracy\n", "", "id,accuracy\na,1\nb,0.\nc,-\n"):
        (tmp_path / "test.csv").write_text(text)
        assert intervals.read_samples(tmp_path / "test.csv") == ([], {})
