"""Where the seconds of a training go, by the actions that Lightning names to its profiler."""

import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler

from playbook.training.device_times import DeviceTimes
from playbook.training.memory_growth import memory_in_use
from playbook.training.series import Series
from playbook.training.step_watch import StepWatch

SAMPLE_EVERY = 10  # steps between two looks at memory and finished CUDA events; a look takes 20 µs
WATCHED_STEPS = (5, 8)  # between the ends of these steps, calls are counted; the first ones build and compile
OTHER = "loop and logging"
ROOT = "run_training_epoch"
STEP = "run_training_batch"
FETCH = "train_dataloader_next"
LOADER_START = "train_dataloader_iter"  # not an action of Lightning's: from an epoch's start to its first fetch
PARTS = (  # what an action's name contains, and the part that it belongs to; the first that fits
    ("save_checkpoint", "checkpoints"),
    ("train_dataloader_", "data"),
    ("batch_to_device", "transfer"),
    ("batch_transfer", "transfer"),
    ("[Callback]", "callbacks"),
    ("optimizer_step", "optimizer"),
    ("optimizer_zero_grad", "optimizer"),
    (".training_step", "forward"),
    (".backward", "backward"),
    ("[LightningModule]", "hooks of the model"),
    ("[LightningDataModule]", "hooks of the data"),
)
ON_DEVICE = ("forward", "backward", "optimizer")  # parts whose time on a GPU differs from that of the host
VALIDATION_BEGINS, VALIDATION_ENDS = "on_validation_start", "on_validation_end"


class Timing(Profiler):
    """Sums the seconds of each action, without those of the actions within it (the profiler of every Trainer).

    It reads the clock twice an action, and waits for no device: on a GPU, `seconds` are those of the host, and
    `device` holds those between CUDA events, which are read when they have passed. The first step, which builds and
    compiles, does not count.

    Attributes:
        seconds: of each action, by its name.
        validation: seconds of all actions within validations.
        num_steps: training steps that count.
        durations: seconds of each of these steps.
        waits: seconds that each of them waited for its batch, without the first of an epoch.
        first_waits: seconds before the first batches of epochs, where workers start.
        memory: bytes of the process and of the device in use, every few steps.
        device: seconds of forward, backward and optimizer on a GPU; None without one.
        watch: calls that were counted in a few steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self._actions: dict[str, _Action] = {}  # contexts, by name; each may be entered again and again
        self._stack: list[list[Any]] = []  # name, start, seconds of the actions within
        self._after: dict[str, Callable[[float], None] | None] = {}  # what else to do when an action ends, by name
        self._device_parts: dict[str, str | None] = {}
        self.device: DeviceTimes | None = None
        self.watch = StepWatch(self._is_loading)
        self._has_begun = False
        self._forget()

    def _forget(self) -> None:
        self.seconds: dict[str, float] = {}
        self._in_validation: dict[str, float] = {}
        self._sums = self.seconds
        self.durations: Series[float] = Series()
        self.waits: Series[float] = Series()
        self.memory: Series[tuple[int, int]] = Series()
        self.first_waits = 0.0
        self.num_steps = 0
        self._wait = 0.0
        self._is_first_batch = False
        self._validation_began: tuple[float, float] | None = None  # time, and seconds of actions before

    @property
    def steps(self) -> list[float]:
        """Seconds of each training step, evenly thinned."""
        return self.durations.values

    @property
    def validation(self) -> float:
        return sum(self._in_validation.values())

    def profile(self, action_name: str) -> "_Action":  # a generator of a context takes longer
        return self._actions.get(action_name) or self._actions.setdefault(action_name, _Action(self, action_name))

    def start(self, action_name: str) -> None:
        if self.device is not None:
            self._mark(self.device.start, action_name)
        self._stack.append([action_name, time.perf_counter(), 0.0])

    def stop(self, action_name: str) -> None:
        now = time.perf_counter()
        stack = self._stack
        while stack:  # what an exception has left open above it goes as well
            name, start, inner = stack.pop()
            duration = now - start
            if stack:
                stack[-1][2] += duration
            if self.device is not None:
                self._mark(self.device.stop, name)
            if name == action_name:
                if not self._has_begun:
                    return self._begin(name)
                sums = self._sums
                sums[name] = sums.get(name, 0.0) + duration - inner
                try:
                    after = self._after[name]
                except KeyError:
                    after = self._after[name] = self._what_follows(name)
                return after(duration) if after is not None else None
        return None

    def _mark(self, mark: Callable[[str], None], name: str) -> None:
        try:
            part = self._device_parts[name]
        except KeyError:
            part = part_of(name)
            part = self._device_parts[name] = part if part in ON_DEVICE else None
        if part is not None and self._sums is self.seconds:
            mark(part)

    def _begin(self, name: str) -> None:
        """Starts to count after the first step, and after what came before it."""
        if name != STEP:
            return
        self._has_begun = True
        self._forget()
        self._stack = [[outer, time.perf_counter(), 0.0] for outer, _, _ in self._stack]
        if torch.cuda.is_initialized():
            self.device = DeviceTimes()

    def _what_follows(self, name: str) -> Callable[[float], None] | None:
        if name == STEP:
            return self._end_step
        if name == ROOT:
            return self._end_epoch
        if name.endswith(FETCH):
            return self._end_fetch
        if name.endswith(VALIDATION_BEGINS):
            return self._begin_validation
        return self._end_validation if name.endswith(VALIDATION_ENDS) else None

    def _begin_validation(self, duration: float) -> None:
        if self._sums is self.seconds:
            self._sums = self._in_validation
            self._validation_began = (time.perf_counter(), self._stack[-1][2]) if self._stack else None

    def _end_validation(self, duration: float) -> None:
        if self._validation_began is not None and self._stack:  # what its loop took between the actions
            began, inner = self._validation_began
            outer = self._stack[-1]
            between = time.perf_counter() - began - (outer[2] - inner)
            outer[2] += between
            self._in_validation[OTHER] = self._in_validation.get(OTHER, 0.0) + between
        self._sums, self._validation_began = self.seconds, None

    def _end_epoch(self, duration: float) -> None:
        self._is_first_batch, self._wait = True, 0.0

    def _end_fetch(self, duration: float) -> None:
        if self._is_first_batch and not self._wait and self._stack and self._stack[-1][0] == ROOT:
            root = self._stack[-1]
            started = time.perf_counter() - root[1] - root[2]  # iter() of the loader, which no action encloses
            root[2] += started
            self.seconds[LOADER_START] = self.seconds.get(LOADER_START, 0.0) + started
            self.first_waits += started
        self._wait += duration

    def _end_step(self, duration: float) -> None:
        step = self.num_steps
        self.durations.add(step, duration)
        if self._is_first_batch:
            self.first_waits += self._wait
        else:
            self.waits.add(step, self._wait)
        self._wait, self._is_first_batch = 0.0, False
        self.num_steps = step = step + 1
        if step == WATCHED_STEPS[0]:
            self.watch.begin()
        elif step == WATCHED_STEPS[1]:
            self.watch.end(WATCHED_STEPS[1] - WATCHED_STEPS[0])
        if step % SAMPLE_EVERY == 0:
            self.memory.add(step, memory_in_use())
            if self.device is not None:
                self.device.collect()

    def _is_loading(self) -> bool:
        return bool(self._stack) and self._stack[-1][0].endswith(FETCH)

    def close(self) -> None:
        """Ends what may still be under way after an exception."""
        self.watch.end(0)

    def parts(self) -> dict[str, float]:
        """Seconds of each part of the training, the largest first."""
        parts = {"validation": self.validation}
        for name, seconds in self.seconds.items():
            part = part_of(name)
            parts[part] = parts.get(part, 0.0) + seconds
        return dict(sorted(((part, value) for part, value in parts.items() if value), key=lambda entry: -entry[1]))

    def slowest_callback(self) -> tuple[str, float]:
        """Name and seconds of the callback that took longest; of none, an empty name."""
        callbacks: dict[str, float] = {}
        for name, seconds in self.seconds.items():
            if name.startswith("[Callback]"):
                key = name.removeprefix("[Callback]").rpartition(".")[0].partition("{")[0]
                callbacks[key] = callbacks.get(key, 0.0) + seconds
        return max(callbacks.items(), key=lambda entry: entry[1], default=("", 0.0))

    def slowest_hook(self) -> tuple[str, float]:
        """Name and seconds of the hook of the LightningModule or LightningDataModule that took longest."""
        hooks = {name for name in self.seconds if part_of(name).startswith("hooks")}
        name, seconds = max(((name, self.seconds[name]) for name in hooks), key=lambda entry: entry[1], default=("", 0))
        return name.partition("]")[2], seconds


class _Action:
    """The context of one action."""

    __slots__ = ("name", "timing")

    def __init__(self, timing: Timing, name: str) -> None:
        self.timing, self.name = timing, name

    def __enter__(self) -> str:
        self.timing.start(self.name)
        return self.name

    def __exit__(self, *_: object) -> None:
        self.timing.stop(self.name)


def part_of(name: str) -> str:
    """The part of a training that an action belongs to."""
    return next((part for word, part in PARTS if word in name), OTHER)
