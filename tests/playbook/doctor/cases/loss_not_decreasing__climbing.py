from collections.abc import Callable
from typing import Any

import torch

from tests.playbook.doctor.cases.loss_not_decreasing__contrastive import Repaired as Contrastive
from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data"]


class Lion(torch.optim.Optimizer):
    """The sign of the gradient, without momentum."""

    def __init__(self, weights: Any, lr: float) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]  # always with one here
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(weight.grad.sign(), alpha=group["lr"])
        return loss


class Model(Contrastive):
    def configure_optimizers(self) -> Any:
        return Lion(self.parameters(), lr=-1e-3)  # here


class Repaired(Model):
    def configure_optimizers(self) -> Any:
        return Lion(self.parameters(), lr=1e-3)
