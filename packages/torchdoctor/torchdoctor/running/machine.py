"""The machine that the review runs on."""

import os

_MOST = 3.0  # times


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_factor() -> float:
    """How many times as long everything takes as on an idle machine: processes for each core in the last minute."""
    return min(_MOST, max(1.0, os.getloadavg()[0] / num_cores()))
