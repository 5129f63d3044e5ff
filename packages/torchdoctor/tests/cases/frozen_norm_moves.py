from typing import Any

import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False  # here
        self.net = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.backbone(x))


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.backbone.eval()


# -- no_grad
NoGradData = Blobs


class NoGradModel(Classifier):
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


class NoGradRepaired(NoGradModel):
    def __init__(self) -> None:
        super().__init__()
        self.backbone.eval()


# -- parts
PartsData = Blobs


class PartsModel(Classifier):
    """A frozen network with a new last layer; its first norm stands alone."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        self.backbone = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), block, nn.Linear(32, 3))
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False  # here
        self.backbone[3] = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone(x)


class PartsRepaired(PartsModel):
    def __init__(self) -> None:
        super().__init__()
        for part in (self.backbone[1], self.backbone[2]):
            part.eval()
