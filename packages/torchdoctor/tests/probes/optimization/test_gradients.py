"""Which gradients are compared with which."""

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn

from programs import Blobs, needs_fork
from torchdoctor.review import review_module

pytestmark = needs_fork


class _Scaled(pl.LightningModule):
    """Two networks of three layers, with a factor of 1e-7 between them."""

    def __init__(self, num_optimizers: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.num_optimizers = num_optimizers
        self.front, self.back = (
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(2)
        )

    def training_step(self, batch: Any, batch_idx: int) -> None:
        loss: Tensor = self.back(1e-7 * self.front(batch[0])).square().mean()
        optimizers = self.optimizers()
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def configure_optimizers(self) -> Any:
        parts = [self] if self.num_optimizers == 1 else [self.front, self.back]
        return [torch.optim.SGD(part.parameters(), lr=1e-3) for part in parts]


@pytest.mark.parametrize(("num_optimizers", "found"), [(1, ["vanishing-gradient"]), (2, [])])
@pytest.mark.slow
def test_weights_of_each_optimizer_are_measured_on_their_own(num_optimizers: int, found: list[str]) -> None:
    report = review_module(lambda: (_Scaled(num_optimizers), Blobs()), ids=frozenset({"vanishing-gradient"}))
    assert [item["id"] for item in report.findings] == found, report
    assert not report.notes, report
