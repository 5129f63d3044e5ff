"""Random numbers that depend only on a key, so that no state has to be saved to draw them again."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch


def derived_seed(*key: int) -> int:
    """A 32-bit seed from a tuple of integers, the same on every machine and in every process."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=4).digest(), "little")


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seeds Python, NumPy and torch on the CPU from the key, and gives each its former state back."""
    python, array, tensor = random.getstate(), np.random.get_state(), torch.get_rng_state()
    _seed_cpu(derived_seed(*key))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.set_rng_state(tensor)


@contextmanager
def repeatable() -> Iterator[None]:
    """Random draws that depend on the seed alone, not on what ran before, so that an evaluation repeats them.

    Without a seed, as with seed_everything false, nothing is changed. The generators get their former state back.
    """
    if "PL_GLOBAL_SEED" not in os.environ:
        yield
        return
    seed = int(os.environ["PL_GLOBAL_SEED"])
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    with seeded(seed):
        seed_generators(derived_seed(seed))
        yield
    if gpus:
        torch.cuda.set_rng_state_all(gpus)


def seed_generators(seed: int) -> None:
    """Seeds Python, NumPy and torch, on the CPU and on GPUs in use."""
    _seed_cpu(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(seed)


def _seed_cpu(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    # torch.manual_seed would keep a formatted stack trace for a GPU that may come: 0.7 ms a call, never freed
    torch.default_generator.manual_seed(seed)
