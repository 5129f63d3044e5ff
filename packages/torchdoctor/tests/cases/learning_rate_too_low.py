from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(
            self.parameters(),
            weight_decay=0.01,
            lr=1e-8,  # here
        )


class Repaired(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), weight_decay=0.01, lr=1e-3)


# -- players
PlayersData = Blobs


class PlayersRepaired(Classifier):
    """Rebuilds its input beside the classification, with an optimizer for each."""

    slow = 1e-3

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.code = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 8))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        losses = [nn.functional.cross_entropy(self(x), y), (self.code(x) - x).square().mean()]
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(
                self.net.parameters(),
                lr=1e-3,
                betas=(0.5, 0.99),
                eps=1e-7,
            ),
            torch.optim.Adam(self.code.parameters(), lr=self.slow),  # here
        ]


class PlayersModel(PlayersRepaired):
    slow = 1e-9


# -- scale
class ScaleModel(OneStep):
    """Prices in thousands, from features of size one."""

    lr = 1e-4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 1)

    def step(self, batch: Any) -> Tensor:
        features, price = batch
        return F.mse_loss(self.net(features), price)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)  # here


class ScaleRepaired(ScaleModel):
    lr = 0.3


def prices(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(number, 6, generator=generator)
    price = 150 + features @ torch.tensor([30.0, -20, 10, 5, 0, 40]) + 20 * torch.randn(number, generator=generator)
    return TensorDataset(features, price[:, None])


class ScaleData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = prices(400, 0), prices(100, 1)


# -- sgd
SgdData = Blobs


class SgdRepaired(Classifier):
    lr = 1e-1

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)  # here


class SgdModel(SgdRepaired):
    lr = 1e-6


# -- warmup
WarmupData = Blobs


def rate(step: int) -> float:
    """A rate as such (Vaswani et al. 2017), and no factor of one."""
    return 64**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5)


class WarmupModel(Classifier):
    lr = 3e-4

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)  # here
        return [optimizer], [{"scheduler": LambdaLR(optimizer, rate), "interval": "step"}]


class WarmupRepaired(WarmupModel):
    lr = 1.0


# -- zeros
ZerosData = Blobs


class ZerosRepaired(Classifier):
    """Starts from equal logits: the last layer is zero, and leaves zero at any rate."""

    lr = 1e-3

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.net[2].weight)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)  # here


class ZerosModel(ZerosRepaired):
    lr = 2e-8
