"""Seconds of a training's parts on a GPU, between CUDA events that are read when they have passed."""

from collections import deque
from typing import Any

import torch


class DeviceTimes:
    """Records an event at the start and at the end of each part, and reads them later, without waiting.

    Between two events lies what the device computes and what it waits for in between. Tried with made-up events; not
    yet on a GPU.

    Attributes:
        seconds: of each part, without those of the parts within it.
        num_lost: pairs that were given up, as more than `most_pending` had not passed.
    """

    def __init__(self, most_pending: int = 4096) -> None:
        self.seconds: dict[str, float] = {}
        self.num_lost = 0
        self._most_pending = most_pending
        self._open: list[tuple[str, Any]] = []
        self._pending: deque[tuple[str, str | None, Any, Any]] = deque()  # part, part around it, start, end
        self._free: list[Any] = []

    def start(self, part: str) -> None:
        self._open.append((part, self._event()))

    def stop(self, part: str) -> None:
        if not self._open or self._open[-1][0] != part:  # began before the events did
            return
        _, start = self._open.pop()
        outer = self._open[-1][0] if self._open else None
        self._pending.append((part, outer, start, self._event()))
        if len(self._pending) > self._most_pending:
            self._release(self._pending.popleft())
            self.num_lost += 1

    def collect(self) -> None:
        """Adds up what the device has passed by now."""
        while self._pending and self._pending[0][3].query():
            part, outer, start, end = entry = self._pending.popleft()
            seconds = start.elapsed_time(end) / 1e3
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
            if outer is not None:
                self.seconds[outer] = self.seconds.get(outer, 0.0) - seconds
            self._release(entry)

    def finish(self) -> dict[str, float]:
        """Waits for the device once, and returns the seconds of each part."""
        torch.cuda.synchronize()
        self.collect()
        return self.seconds

    def _event(self) -> Any:
        event: Any = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _release(self, entry: tuple[str, str | None, Any, Any]) -> None:
        self._free += entry[2:]
