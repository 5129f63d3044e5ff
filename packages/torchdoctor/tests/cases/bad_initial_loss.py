from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier, OneStep

Data = Blobs
Repaired = Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 3))

        nn.init.zeros_(self.net[0].bias)
        nn.init.zeros_(self.net[2].bias)

        nn.init.normal_(self.net[2].weight, std=2.0)  # here


# -- factor
FactorData = Blobs


class FactorRepaired(Classifier):
    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        return logits * self.factor  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(F.log_softmax(self(x), dim=-1), y)


class FactorModel(FactorRepaired):
    factor = 60.0


# -- offset
class OffsetModel(OneStep):
    """Values around 3, of which the network starts far away."""

    lr = 1e-4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))  # here

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class OffsetRepaired(OffsetModel):
    lr = 2e-2  # a few steps get there


class OffsetData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
        y = 3 + 0.2 * x[:, :4].sum(dim=1, keepdim=True)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- criterion
CriterionData = OffsetData


class CriterionModel(OffsetModel):
    """The loss is a module, which is given the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))  # here
        self.criterion = nn.MSELoss()

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return self.criterion(self.net(x), y)


class CriterionRepaired(CriterionModel):
    lr = 2e-2  # a few steps get there


# -- small_logits
SmallLogitsData = Blobs


class SmallLogitsRepaired(Classifier):
    """Cosines, which are meant to be scaled."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.normalize(self.net[:2](x), dim=-1)
        return F.linear(hidden, F.normalize(self.net[2].weight, dim=-1)) * 40


class SmallLogitsModel(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        small = self.net(x) / 2
        return small * 60  # here


# -- tokens
TokensData = Blobs


class TokensRepaired(OneStep):
    """Gives one answer for each half of the features, and all answers in one row to the loss."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, self.outputs))

    def forward(self, x: Tensor) -> Tensor:
        halves = x.unflatten(1, (2, 4))
        return self.net(halves) * self.factor  # here

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x).flatten(0, 1), y.repeat_interleave(2))


class TokensModel(TokensRepaired):
    factor = 60.0
