"""Whether the memory of a training grows with its steps."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

LEAST_SAMPLES = 8
WARM_UP = 0.25  # of the samples: caches and allocators fill at first
NUM_SECTIONS = 4  # of the rest; memory that grows is higher in each than in the one before
LEAST_GROWTH_MIB = 32.0  # allocators take and return tens of MiB
LEAST_GROWTH_SHARE = 0.03  # of what was in use before
STATM = Path("/proc/self/statm")
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_in_use() -> tuple[int, int]:
    """Bytes of this process and of its tensors on the GPU; 0 where it is not known.

    Files that are mapped into memory do not count: reading through them is no growth.
    """
    device = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    try:
        _, resident, shared, *_ = STATM.read_text().split()
    except OSError:  # other systems than Linux
        return 0, device
    return (int(resident) - int(shared)) * PAGE, device


def growth_per_step(steps: Sequence[int], mib: Sequence[float]) -> float:
    """MiB that a step adds, by least squares after a warm-up; 0 where memory does not grow steadily.

    Args:
        steps: number of the step of each sample.
        mib: memory in use.
    """
    first = int(WARM_UP * len(steps))
    steps, mib = steps[first:], mib[first:]
    count = len(steps)
    if count < LEAST_SAMPLES:
        return 0.0
    sections = [mib[k * count // NUM_SECTIONS : (k + 1) * count // NUM_SECTIONS] for k in range(NUM_SECTIONS)]
    levels = [sorted(section)[len(section) // 2] for section in sections]
    mean_step, mean = sum(steps) / count, sum(mib) / count
    slope = sum((step - mean_step) * (value - mean) for step, value in zip(steps, mib, strict=True))
    slope /= sum((step - mean_step) ** 2 for step in steps)
    grown = slope * (steps[-1] - steps[0])
    rises = all(low < high for low, high in pairwise(levels))
    return slope if rises and grown >= max(LEAST_GROWTH_MIB, LEAST_GROWTH_SHARE * mib[0]) else 0.0
