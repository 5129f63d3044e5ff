"""Memory that grows, and memory that only moves."""

import random
from pathlib import Path

import pytest

from playbook.training import memory_growth
from playbook.training.memory_growth import growth_per_step, memory_in_use

STEPS = list(range(0, 400, 10))


def test_a_line_has_its_slope() -> None:
    assert growth_per_step(STEPS, [1000 + 0.5 * step for step in STEPS]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "values",
    [
        [1000.0] * 40,
        [1000 + min(step, 60) * 10 for step in STEPS],  # fills a cache at first
        [1000 + (400 if step >= 250 else 0) for step in STEPS],  # one jump, as for a larger batch
        [1000 + 0.05 * step for step in STEPS],  # 15 MiB are no growth
        [1000 + 100 * (step // 10 % 2) for step in STEPS],  # to and fro
        [100_000 + 0.5 * step for step in STEPS],  # 0.15 % of what is in use
    ],
    ids=["level", "cache", "jump", "little", "alternating", "a share"],
)
def test_no_growth(values: list[float]) -> None:
    assert growth_per_step(STEPS, values) == 0


def test_growth_beneath_noise() -> None:
    noise = random.Random(0)
    values = [1000 + step + noise.uniform(-30, 30) for step in STEPS]
    assert growth_per_step(STEPS, values) == pytest.approx(1, rel=0.2)


def test_few_samples_tell_nothing() -> None:
    assert growth_per_step(STEPS[:9], [1000.0 * step for step in range(9)]) == 0


def test_mapped_files_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("5000 800 300 1 0 700 0\n")  # pages: size, resident, shared, …
    monkeypatch.setattr(memory_growth, "STATM", tmp_path / "statm")
    assert memory_in_use()[0] == 500 * memory_growth.PAGE


@pytest.mark.skipif(not memory_growth.STATM.exists(), reason="Linux tells the memory of a process")
def test_memory_of_this_process_is_told() -> None:
    assert memory_in_use()[0] > 2**20


def test_other_systems_tell_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_growth, "STATM", tmp_path / "statm")
    assert memory_in_use() == (0, 0)
