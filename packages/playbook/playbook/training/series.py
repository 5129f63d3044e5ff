"""Values of the steps of a training, of which a bounded number is kept."""

from typing import Generic, TypeVar

MOST_NOTED = 4096  # values of a series that are kept
Value = TypeVar("Value")


class Series(Generic[Value]):
    """Values of steps, evenly thinned when there are many.

    Attributes:
        steps: number of the step of each value.
        values: those that are kept.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[Value] = []
        self._num_seen = 0
        self._every = 1

    def add(self, step: int, value: Value) -> None:
        if self._num_seen % self._every == 0:
            self.steps.append(step)
            self.values.append(value)
            if len(self.values) >= MOST_NOTED:
                self.steps, self.values, self._every = self.steps[::2], self.values[::2], 2 * self._every
        self._num_seen += 1
