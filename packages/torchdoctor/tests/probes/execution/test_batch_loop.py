"""Loops over a batch of which one call of torch could not do the work."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from programs import Blobs, Classifier, needs_fork
from torchdoctor.review import review_module

pytestmark = needs_fork


class _LookingUp(Classifier):
    def numbers(self, labels: Tensor) -> Tensor:
        known = {0: 2, 1: 0, 2: 1}
        return torch.tensor([known[int(label)] for label in labels])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), self.numbers(y))


class _Computing(_LookingUp):
    def numbers(self, labels: Tensor) -> Tensor:
        return torch.stack([(label + 2) % 3 for label in labels])


@pytest.mark.slow
def test_a_loop_that_looks_numbers_up() -> None:
    ids = frozenset({"python-loop-over-batch"})
    assert not review_module(lambda: (_LookingUp(), Blobs()), ids=ids).findings
    assert len(review_module(lambda: (_Computing(), Blobs()), ids=ids).findings) == 1
