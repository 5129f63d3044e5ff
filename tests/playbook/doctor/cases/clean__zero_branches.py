from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """24 residual branches and a head that start at zero, and a learning rate that does so too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        make = lambda: nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))  # noqa: E731
        self.branches = nn.ModuleList([make() for _ in range(24)])
        self.net = nn.Linear(32, 3)
        for branch in self.branches:
            nn.init.zeros_(branch[-1].weight)
        nn.init.zeros_(self.net.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for branch in self.branches:
            x = x + branch(x)
        return self.net(x)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}
