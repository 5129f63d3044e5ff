from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        self.net = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():  # here
            features = self.backbone(x)
        return self.net(features)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.backbone.eval()
