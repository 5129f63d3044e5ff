"""What a training comes to, however its last steps look."""

import math

import pytest

from playbook.doctor.probes.learning_rate import _settled


def test_a_spike_is_no_divergence() -> None:
    falling = [1 / (1 + step) for step in range(60)]
    assert _settled(falling + [5.0] * 8) < 0.05


def test_a_rise_stays() -> None:
    assert _settled([1.0 + step for step in range(100)]) == pytest.approx(75.0, abs=1)
    assert _settled([1.0] * 20 + [50.0] * 30) == 50.0


def test_what_is_no_number_stays_so() -> None:
    assert math.isnan(_settled([1.0] * 20 + [math.nan]))
