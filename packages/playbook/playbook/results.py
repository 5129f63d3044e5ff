"""What a task has to say of its test outputs, for the report of a run."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class TestReport:
    """A task's own part of the report: `Task.report(outputs, facts)` returns one.

    Args:
        samples: values of each test sample (N,), by metric, such as `accuracy` (1 if right, 0 if not): the metric is
            their mean. The report gives each a confidence interval, and compares runs by them.
        rankings: samples to show, by title: numbers (N,), the largest first; -inf leaves a sample out.
        tables: rows by title.
        figures: drawn within `playbook.charts.style()`, by title, each with a sentence that says what it shows.
    """

    __test__ = False  # pytest takes classes of this name for tests

    samples: dict[str, Tensor] = field(default_factory=dict)
    rankings: dict[str, Tensor] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    figures: dict[str, tuple["Figure", str]] = field(default_factory=dict)
