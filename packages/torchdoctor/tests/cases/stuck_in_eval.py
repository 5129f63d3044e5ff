from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.net.eval()  # here


class Repaired(Classifier):
    """Frozen norms, on purpose: `train` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.norm(x))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self


# -- frozen
FrozenData = Blobs


class FrozenRepaired(Classifier):
    """Has a frozen part, which is in evaluation mode for good."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval().requires_grad_(False)
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.frozen(x))


class FrozenModel(FrozenRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.eval()  # here
        return super().training_step(batch, batch_idx)


# -- helper
HelperData = Blobs


def width(features: nn.Module, restore: bool) -> int:
    """Of what the features are for a sample."""
    features.eval()  # here
    with torch.no_grad():
        number = features(torch.zeros(1, 8)).shape[1]
    return (features.train() if restore else features) and number


class HelperModel(Classifier):
    restores = False

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU())
        self.net = nn.Sequential(nn.Linear(width(self.features, self.restores), 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.features(x))


class HelperRepaired(HelperModel):
    restores = True


# -- part
PartData = Blobs


class PartRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class PartModel(PartRepaired):
    def __init__(self) -> None:
        super().__init__()
        self.net[:3].eval()  # here


# -- step
StepData = Blobs


class StepRepaired(Classifier):
    """Learns from its own confident guesses as well."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))

    @torch.no_grad()
    def guess(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.eval()
        certainty, label = self(x).softmax(1).max(1)
        self.train()
        return label, certainty > 0.9

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        label, sure = self.guess(x)
        again = (F.cross_entropy(self(x + 0.1 * torch.randn_like(x)), label, reduction="none") * sure).mean()
        return F.cross_entropy(self(x), y) + 0.1 * again


class StepModel(StepRepaired):
    @torch.no_grad()
    def guess(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.eval()  # here
        certainty, label = self(x).softmax(1).max(1)
        return label, certainty > 0.9
