from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.tensor(self.net(x).tolist())  # here
        return self.head(features)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))


# -- no_grad
NoGradData = Blobs


class NoGradModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def features(self, x: Tensor) -> Tensor:
        with torch.no_grad():  # here
            return self.net(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class NoGradRepaired(NoGradModel):
    """The same net, frozen on purpose: it is in no optimizer."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.head.parameters(), lr=1e-2)


# -- nothing_returned
NothingReturnedData = Blobs


class NothingReturnedModel(Classifier):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # here
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss)


class NothingReturnedRepaired(Classifier):
    pass


# -- whole
WholeData = Blobs


class WholeRepaired(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net[2](self.net[:2](x))


class WholeModel(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.net[:2](x)
        with torch.no_grad():  # here
            return self.net[2](hidden)
