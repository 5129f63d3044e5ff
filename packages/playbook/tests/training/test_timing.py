"""Seconds of the parts of a training, by a clock that tests turn."""

import pytest
import torch

from playbook.training import series, timing
from playbook.training.timing import Timing

FETCH = "[_TrainingEpochLoop].train_dataloader_next"


class Clock:
    """Stands still until it is turned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)


def spend(profiler: Timing, clock: Clock, *actions: tuple[str, float]) -> None:
    for name, seconds in actions:
        with profiler.profile(name):
            clock.now += seconds


def begun(clock: Clock) -> Timing:
    """After the first step, which does not count."""
    profiler = Timing()
    spend(profiler, clock, ("run_training_batch", 100.0))
    return profiler


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_an_action_does_not_count_those_within_it(clock: Clock) -> None:
    profiler = Timing()
    with profiler.profile("run_training_epoch"):
        spend(profiler, clock, ("run_training_batch", 100.0))  # the first step does not count
        clock.now += 1
        spend(profiler, clock, ("[_TrainingEpochLoop].train_dataloader_next", 2.0))
        with profiler.profile("[LightningModule]Line.optimizer_step"):
            clock.now += 3
            spend(profiler, clock, ("[Strategy]SingleDeviceStrategy.training_step", 4.0))
            spend(profiler, clock, ("[Strategy]SingleDeviceStrategy.backward", 5.0))
        spend(profiler, clock, ("[Callback]EMA{'decay': 0.9}.on_train_batch_end", 6.0))
        spend(profiler, clock, ("[Callback]EMA{'decay': 0.9}.on_train_epoch_end", 1.0))
        with profiler.profile("save_checkpoint"):
            spend(profiler, clock, ("[Callback]EMA{'decay': 0.9}.on_save_checkpoint", 0.5))
        spend(profiler, clock, ("[Strategy]SingleDeviceStrategy.batch_to_device", 0.25))
    assert profiler.parts() == {
        "callbacks": 7.0,
        "backward": 5.0,
        "forward": 4.0,
        "optimizer": 3.0,
        "data": 2.0,
        "loop and logging": 1.0,
        "checkpoints": 0.5,
        "transfer": 0.25,
    }
    assert profiler.slowest_callback() == ("EMA", 7.5)
    assert Timing().slowest_callback() == ("", 0.0)
    assert Timing().slowest_hook() == ("", 0)


def test_validations_are_one_part(clock: Clock) -> None:
    profiler = begun(clock)
    spend(profiler, clock, ("[Callback]A.on_validation_start", 1.0), ("[Strategy]S.validation_step", 2.0))
    spend(profiler, clock, ("[Callback]A.on_validation_end", 4.0), ("[Strategy]S.training_step", 8.0))
    assert profiler.parts() == {"forward": 8.0, "validation": 6.0, "callbacks": 1.0}


def test_an_exception_leaves_nothing_open(clock: Clock) -> None:
    profiler = begun(clock)
    profiler.start("run_training_epoch")
    profiler.start("[Strategy]S.backward")
    clock.now += 1
    profiler.stop("run_training_epoch")
    profiler.stop("never begun")
    assert not profiler._stack
    assert profiler.parts() == {}, "neither has ended by itself"


def test_the_loop_of_a_validation_belongs_to_it(clock: Clock) -> None:
    profiler = begun(clock)
    with profiler.profile("run_training_epoch"):
        clock.now += 1
        spend(profiler, clock, ("[Callback]A.on_validation_start", 1.0))
        clock.now += 16
        spend(profiler, clock, ("[Strategy]S.validation_step", 2.0), ("[Callback]A.on_validation_end", 4.0))
        clock.now += 2
    assert profiler.parts() == {"validation": 22.0, "loop and logging": 3.0, "callbacks": 1.0}


def test_workers_that_start_belong_to_the_first_wait_of_an_epoch(clock: Clock) -> None:
    profiler = begun(clock)
    for _ in range(2):
        with profiler.profile("run_training_epoch"):
            clock.now += 8  # iter() of the loader
            spend(profiler, clock, (FETCH, 4.0), ("run_training_batch", 1.0))
            spend(profiler, clock, (FETCH, 0.5), ("run_training_batch", 1.0))
            clock.now += 0.25
    # the first epoch began with the steps before it
    assert profiler.first_waits == 12.0
    assert profiler.waits.values == [4.0, 0.5, 0.5]
    assert profiler.parts() == {"data": 17.0, "loop and logging": 12.5}
    assert profiler.seconds[timing.LOADER_START] == 8.0


def test_hooks_of_the_model_and_of_the_data_are_parts(clock: Clock) -> None:
    profiler = begun(clock)
    spend(profiler, clock, ("[LightningModule]Line.on_train_batch_end", 3.0))
    spend(
        profiler, clock, ("[LightningDataModule]Points.on_before_batch_transfer", 1.0), ("[LightningModule]Line.x", 1.0)
    )
    spend(profiler, clock, ("[LightningDataModule]Points.prepare_data", 2.0))
    assert profiler.parts() == {"hooks of the model": 4.0, "hooks of the data": 2.0, "transfer": 1.0}
    assert profiler.slowest_hook() == ("Line.on_train_batch_end", 3.0)


def test_many_steps_are_thinned(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_NOTED", 8)
    profiler = Timing()
    for number in range(101):
        spend(profiler, clock, ("run_training_batch", float(number)))
    assert profiler.num_steps == 100
    assert len(profiler.steps) < 8
    assert profiler.steps[:3] == [1.0, 17.0, 33.0]
    assert profiler.durations.steps[:3] == [0, 16, 32]


def test_memory_is_looked_at_now_and_then(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "memory_in_use", lambda: (int(clock.now), 0))
    profiler = begun(clock)
    for _ in range(25):
        spend(profiler, clock, ("run_training_batch", 1.0))
    assert profiler.memory.steps == [10, 20]
    assert profiler.memory.values == [(110, 0), (120, 0)]


def test_calls_are_counted_in_a_few_steps_only(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.training.step_watch._has_compiled", lambda: False)  # another test may have
    profiler = begun(clock)
    x = torch.ones(1, requires_grad=True)
    for _ in range(20):
        with profiler.profile("run_training_batch"):
            x.square().sum().backward()
            x.item()
        with profiler.profile(FETCH):
            x.item()  # of a data set
    file, line, method = profiler.watch.lines_of_every_step()[0]
    assert (file, method) == (__file__, "item")
    assert profiler.watch.reads == {(file, line, method): 3}
    assert profiler.watch.num_operators == 2
    assert "item" not in vars(torch.Tensor)


def test_what_is_counted_ends_with_the_training(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.training.step_watch._has_compiled", lambda: False)  # another test may have
    profiler = begun(clock)
    for _ in range(timing.WATCHED_STEPS[0]):
        spend(profiler, clock, ("run_training_batch", 1.0))
    assert "item" in vars(torch.Tensor)
    profiler.close()
    assert "item" not in vars(torch.Tensor)


def test_events_are_recorded_for_the_parts_of_a_device(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Marks:
        """Notes what it is told."""

        def start(self, part: str) -> None:
            calls.append(f"{part} begins")

        def stop(self, part: str) -> None:
            calls.append(f"{part} ends")

        def collect(self) -> None:
            calls.append("collect")

    monkeypatch.setattr(timing.torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(timing, "DeviceTimes", Marks)
    monkeypatch.setattr(timing, "memory_in_use", lambda: (0, 0))
    profiler = begun(clock)
    with profiler.profile("[LightningModule]Line.optimizer_step"):
        spend(profiler, clock, ("[Strategy]S.training_step", 1.0), ("[Callback]A.on_before_backward", 1.0))
    expected = ["optimizer begins", "forward begins", "forward ends", "optimizer ends"]
    assert calls == expected
    for _ in range(timing.SAMPLE_EVERY):
        spend(profiler, clock, ("run_training_batch", 1.0))
    assert calls == [*expected, "collect"]
    spend(profiler, clock, ("[Callback]A.on_validation_start", 1.0), ("[Strategy]S.backward", 2.0))
    assert calls == [*expected, "collect"], "those of a validation do not count"
    profiler.close()
