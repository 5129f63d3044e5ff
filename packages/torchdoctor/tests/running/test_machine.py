"""How busy the machine is, and how much longer a review may take for it."""

import os

import pytest

from torchdoctor.running.machine import load_factor, num_cores


@pytest.mark.parametrize(("processes", "longer"), [(0.0, 1.0), (0.5, 1.0), (2.0, 2.0), (9.0, 3.0)])
def test_crowding_is_of_processes_for_each_core(
    monkeypatch: pytest.MonkeyPatch, processes: float, longer: float
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (processes * num_cores(), 0.0, 0.0))
    assert load_factor() == longer
