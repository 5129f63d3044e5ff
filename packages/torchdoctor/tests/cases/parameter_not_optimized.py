from typing import Any

import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.temperature

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)  # here


class Repaired(Model):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


# -- names
NamesData = Blobs


class NamesRepaired(Classifier):
    endings: tuple[str, ...] = ("weight", "bias", "scale")

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scale)

    def configure_optimizers(self) -> Any:
        chosen = []
        for name, parameter in self.named_parameters():  # here
            if name.endswith(self.endings):
                chosen.append(parameter)
        groups = [{"params": chosen, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-3)


class NamesModel(NamesRepaired):
    endings = ("weight", "bias")


# -- pretrained
PretrainedData = Blobs


class PretrainedModel(Classifier):
    """Trains a head on a network that comes trained, and is not frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
        generator = torch.Generator().manual_seed(0)
        self.net(torch.randn(256, 8, generator=generator))  # in place of a checkpoint: its norm has statistics
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.head.parameters(), lr=1e-3)  # here


class PretrainedRepaired(PretrainedModel):
    def __init__(self) -> None:
        super().__init__()
        self.net.requires_grad_(False)
