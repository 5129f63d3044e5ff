"""Cores and load of this machine."""

import os

_MOST = 3.0  # times


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_factor() -> float:
    """The slowdown by other processes: the load of the last minute per core, from 1 to 3."""
    return min(_MOST, max(1.0, os.getloadavg()[0] / num_cores()))
