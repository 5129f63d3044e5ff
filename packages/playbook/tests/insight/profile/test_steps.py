"""Durations of steps by hand, and of a small training as it is."""

from typing import Any

import pytest
import torch

from playbook.insight.profile import steps
from playbook.insight.profile.steps import WARM_UP, StepTimer, peak_mib, reset_peak
from playbook.insight.short_training import OBSERVERS, train_copy
from playbook.testing.command import UNSAVED
from playbook.testing.line import Points, line
from playbook.training.trainer import Trainer


def timed(*seconds: float, batch: int = 4) -> Any:
    """What a timer makes of steps of these durations, after a warm-up of one second each."""
    timer = StepTimer(len(seconds))
    timer._ends = [float(number) for number in range(1, WARM_UP + 1)]
    for duration in seconds:
        timer._ends.append(timer._ends[-1] + duration)
    timer._num_samples = [batch] * len(timer._ends)
    timer._losses = [torch.tensor(2.0), None]
    timer._planned = 100
    return timer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LEAST_SECONDS", 0.0)


def measured(timer: StepTimer, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(steps, "_judged", lambda _: {})
    return timer._measured(None)


def test_the_mean_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(timed(0.25, 0.25, 0.5, 1.0), monkeypatch)
    assert (result.step_ms, result.median_ms, result.samples_per_second) == (500.0, 375.0, 8.0)
    assert result.start_s == pytest.approx(WARM_UP - WARM_UP * 0.5)
    assert result.losses == [2.0]
    assert result.training_s == pytest.approx(WARM_UP * 0.5 + 100 * 0.5)


def test_a_step_that_compiles_belongs_to_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(timed(*[1.0] * 8, 21.0), monkeypatch)
    assert result.step_ms == 1000.0
    assert result.start_s == 20.0
    bursts = measured(timed(*[0.1, 0.1, 0.1, 0.1, 2.0] * 4), monkeypatch)
    assert bursts.step_ms == pytest.approx(480.0), "what comes again and again does not happen once"


def test_batches_without_a_size_have_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = timed(1.0, 1.0)
    timer._num_samples = [None] * len(timer._ends)
    assert measured(timer, monkeypatch).samples_per_second is None


def test_a_training_is_timed_and_left_as_it_was() -> None:
    model, timer = line(), StepTimer(10)
    before = model.net.weight.item()
    trainer = Trainer(**UNSAVED, max_epochs=30)
    train_copy(trainer, model, Points(), timer, without=OBSERVERS)
    assert timer.result is not None
    assert model.net.weight.item() == before
    assert timer.result.planned == 60, "30 epochs of 2 batches"
    assert len(timer.result.losses) == 10
    assert timer.result.losses[8] < timer.result.losses[0], "of the same batch"
    assert sum(timer.result.shares.values()) == pytest.approx(1, abs=1e-3)
    assert timer.result.bound_by


def test_the_peak_is_what_came_beyond() -> None:
    cpu = torch.device("cpu")
    base = reset_peak(cpu)
    if peak_mib(cpu, base) is None:
        pytest.skip("this system tells no peak of a process")
    block = torch.ones(2**25)  # 128 MiB
    del block
    assert 120 < (peak_mib(cpu, base) or 0) < 200
    base = reset_peak(cpu)
    assert (peak_mib(cpu, base) or 0) < 60


def test_without_the_system_there_is_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise OSError

    monkeypatch.setattr(steps.Path, "read_text", fail)
    assert peak_mib(torch.device("cpu"), 1.0) is None
