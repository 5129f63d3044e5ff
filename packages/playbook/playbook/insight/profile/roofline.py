"""Measures what the device computes and moves at most."""

import time
from collections.abc import Callable

import torch

from playbook.insight.profile.operators import Roofline
from playbook.insight.profile.steps import synchronize

SIDES = {"cpu": 1024, "cuda": 8192}  # of the matrices
SIZES = {"cpu": 2**25, "cuda": 2**28}  # values of the vectors: far more than caches hold
SECONDS = 0.3  # of each measurement, of whose repetitions the fastest counts


def measure(device: torch.device, dtype: torch.dtype = torch.float32) -> Roofline:
    """The fastest of several matrix products and additions.

    Args:
        device: that computes.
        dtype: of the matrices; the vectors are float32.
    """
    kind = device.type if device.type in SIDES else "cpu"
    side, size = SIDES[kind], SIZES[kind]
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    flops = 2 * side**3 / _fastest(lambda: torch.mm(left, right, out=product), device)
    vector, total = (torch.ones(size, device=device) for _ in range(2))
    moved = 3 * 4 * size / _fastest(lambda: torch.add(vector, total, out=total), device)
    return Roofline(flops, moved)


def _fastest(act: Callable[[], object], device: torch.device) -> float:
    act()
    fastest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        synchronize(device)
        before = time.perf_counter()
        act()
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - before)
    return fastest
