"""How strongly labels are told from inputs, where no case can measure it."""

import numpy as np
import pytest

from playbook.doctor.probes import misaligned


@pytest.fixture
def pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    return x, (x[:, 0] > 0).astype(np.int64)


def test_signal_and_share_are_computed_once(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pairs
    known: dict = {}
    signal, kept = misaligned._compared(known, x, y, x, y)
    assert signal > 8
    assert kept == 1.0
    assert misaligned._compared(known, x, y, x, 1 - y) == (signal, kept)
    mixed = np.random.default_rng(3).permutation(y)
    chance, share = misaligned._compared(known, x, mixed, x, y)
    assert chance < 6
    assert share == pytest.approx((mixed == y)[:200].mean())
