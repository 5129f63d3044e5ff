"""What counts as a use of a parameter."""

from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from programs import Blobs, Classifier, needs_fork
from torchdoctor.review import review_module

pytestmark = needs_fork


class _Manual(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.spare = nn.Linear(8, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        loss = F.cross_entropy(self(x.to(self.spare.weight.device)), y)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()


class _Detached(_Manual):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.spare(x).detach()


class _Target(Classifier):
    is_copy = True

    def __init__(self) -> None:
        super().__init__()
        self.target = deepcopy(self.net) if self.is_copy else Classifier().net

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.smooth_l1_loss(self.net(batch[0]), 1 + 0.9 * self.target(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), lr=1e-3)


class _Forgotten(_Target):
    is_copy = False


@pytest.mark.slow
def test_a_copy_of_what_is_optimised_is_a_target() -> None:
    ids = frozenset({"parameter-not-optimized"})
    assert not review_module(lambda: (_Target(), Blobs()), ids=ids).findings
    assert [item["id"] for item in review_module(lambda: (_Forgotten(), Blobs()), ids=ids).findings] == [*ids]


@pytest.mark.slow
def test_reading_a_device_or_a_gradient_is_no_use() -> None:
    ids = frozenset({"unused-parameter", "detached-graph"})
    (finding,) = review_module(lambda: (_Manual(), Blobs()), ids=ids).findings
    assert (finding["id"], finding["code"]) == ("unused-parameter", "self.spare = nn.Linear(8, 3)")
    (finding,) = review_module(lambda: (_Detached(), Blobs()), ids=ids).findings
    assert (finding["id"], finding["code"]) == ("detached-graph", "return super().forward(x) + self.spare(x).detach()")
