"""Times between CUDA events, with events that tests let pass."""

from typing import Any

import pytest

from playbook.training import device_times
from playbook.training.device_times import DeviceTimes


class Device:
    """A clock of milliseconds that runs behind the host: events pass when it gets there."""

    now = 0.0
    queued = 0.0


class Event:
    """As torch.cuda.Event."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = Device.queued

    def query(self) -> bool:
        return self.at <= Device.now

    def elapsed_time(self, end: Any) -> float:
        return end.at - self.at


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize() -> None:
        Device.now = Device.queued

    Device.now = Device.queued = 0.0
    monkeypatch.setattr(device_times.torch.cuda, "Event", Event)
    monkeypatch.setattr(device_times.torch.cuda, "synchronize", synchronize)


def run_step(times: DeviceTimes) -> None:
    times.start("optimizer")
    for part, milliseconds in (("forward", 20.0), ("backward", 30.0)):
        times.start(part)
        Device.queued += milliseconds
        times.stop(part)
    Device.queued += 5
    times.stop("optimizer")


def test_events_are_read_when_they_have_passed() -> None:
    times = DeviceTimes()
    run_step(times)
    times.collect()
    assert times.seconds == {}, "the device has not begun"
    Device.now = 20.0
    times.collect()
    assert times.seconds == pytest.approx({"forward": 0.02, "optimizer": -0.02})
    assert times.finish() == pytest.approx({"forward": 0.02, "backward": 0.03, "optimizer": 0.005})


def test_events_are_used_again() -> None:
    times = DeviceTimes()
    for _ in range(5):
        run_step(times)
        times.finish()
    assert len(times._free) == 6
    assert times.seconds == pytest.approx({"forward": 0.1, "backward": 0.15, "optimizer": 0.025})


def test_a_device_far_behind_loses_the_oldest() -> None:
    times = DeviceTimes(most_pending=6)
    for _ in range(4):
        run_step(times)
    assert times.num_lost == 6
    assert times.finish() == pytest.approx({"forward": 0.04, "backward": 0.06, "optimizer": 0.01})


def test_an_end_without_a_beginning_is_ignored() -> None:
    times = DeviceTimes()
    times.stop("forward")
    times.start("forward")
    times.stop("backward")
    assert times.finish() == {}
