"""Units, weights and outputs that are zero, small or far off at the start, and come along."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier, OneStep

# -- clipped_ratings
ClippedRatingsData = Blobs


class ClippedRatingsModel(Classifier):
    """Predicts a number of at least 0 by a last ReLU, which is 0 for all samples as the training begins."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        nn.init.constant_(self.net[2].bias, -0.5)  # type: ignore[arg-type]  # a parameter

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.net(x).squeeze(1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return F.mse_loss(self(x), self.size(x))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.log("val_loss", F.mse_loss(self(x), self.size(x)))

    def size(self, x: Tensor) -> Tensor:
        return 0.3 * (x.square().sum(1).sqrt() - 2).clamp(min=0)


# -- codes
CodesData = Blobs


class CodesModel(Classifier):
    """A vector quantiser: the code of a sample may stay where the vector that it stands for changes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(8, 64)
        self.codes = nn.Parameter(torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        vectors = self.encoder(x).view(-1, 4)  # (B · 16, 4)
        nearest = self.codes[torch.cdist(vectors, self.codes).argmin(1)]
        fit = F.mse_loss(nearest, vectors.detach()) + 0.25 * F.mse_loss(vectors, nearest.detach())
        passed = vectors + (nearest - vectors).detach()
        return F.cross_entropy(self.net(passed.view(-1, 64)), y) + fit

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


# -- deep_autoencoder
DeepAutoencoderData = Blobs


class DeepAutoencoderModel(Classifier):
    """An autoencoder of many layers with torch's own initial weights, whose gradients are small for some steps."""

    def __init__(self) -> None:
        super().__init__()
        widths = [8, 64, 64, 64, 64, 64, 8, 64, 64, 64, 64, 64, 8]
        layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.GELU())]
        self.net = nn.Sequential(*layers[:-1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[0], reduction="sum") / len(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self(batch[0]), batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


# -- faded_in
FadedInData = Blobs


class FadedInModel(Classifier):
    """A layer that fades in (Karras et al. 2018): in the first epoch it multiplies what comes by zero."""

    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.register_buffer("share", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.share * x)

    def on_train_epoch_end(self) -> Any:
        self.share.fill_(1.0)


# -- filled_parameters
FilledParametersData = Blobs


class FilledParametersModel(Classifier):
    """Makes parameters of their sizes alone, and fills each in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.Tensor(8, 3))
        self.shift = nn.Parameter(torch.empty(3))
        self.scale = nn.Parameter(torch.FloatTensor([1.0, 1.0, 1.0]))
        self.first, self.second = (nn.Parameter(torch.empty(1)) for _ in range(2))
        self.third = nn.Parameter(torch.empty(1).fill_(1.0))
        self.reset()

    def reset(self) -> None:
        self.table.data.normal_(0, 0.1)
        with torch.no_grad():
            self.shift[:] = 0
        for weight in (self.first, self.second):
            nn.init.ones_(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale * self.first * self.second * self.third + x @ self.table + self.shift


# -- lazy
LazyData = Blobs


class LazyModel(Classifier):
    """A layer that takes the size of its weights from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 3))


# -- norm_before_relu
NormBeforeReluData = Blobs


class NormBeforeReluModel(OneStep):
    """No unit is above zero with the statistics that the norm begins with, and half of them are in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16, bias=False)
        self.net = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.first(x) - 20)


# -- pairs
class PairsModel(OneStep):
    """Says whether two curves are of one kind.

    What it compares is small at first: the signs of biases decide which of the units are on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(2, 24, 5), nn.ReLU(), nn.Conv1d(24, 16, 5, stride=2), nn.ReLU())
        self.net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        bias = self.net[0].bias
        assert isinstance(bias, nn.Parameter)
        nn.init.uniform_(bias, 0.05, 0.15)
        bias.data[:20].neg_()  # as may happen, of 32

    def step(self, batch: Any) -> Tensor:
        left, right, same = batch
        a, b = (0.02 * self.encode(curve).mean(dim=-1) for curve in (left, right))
        return F.binary_cross_entropy_with_logits(self(torch.cat([(a - b).abs(), a * b], dim=1)).squeeze(1), same)


def pairs(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 6, 32)
    same = (torch.rand(number, generator=generator) < 0.5).float()
    left = torch.randint(4, (number,), generator=generator)  # a label of four kinds, beside that of two
    other = (left + torch.randint(1, 4, (number,), generator=generator)) % 4
    right = torch.where(same.bool(), left, other)

    def curves(kind: Tensor) -> Tensor:
        speeds = torch.tensor([[1.0, 2.0], [2.0, 3.0], [3.0, 1.0], [4.0, 2.0]])[kind]
        noise = torch.randn(len(kind), 2, 32, generator=generator)
        return 1.3 * torch.sin(speeds[..., None] * t) + 0.15 * noise

    return TensorDataset(curves(left), curves(right), same)


class PairsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = pairs(640, 1), pairs(160, 2)


# -- prices
class PricesModel(OneStep):
    """Prices as they are, which three layers that grow together reach within some thousand steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def step(self, batch: Any) -> Tensor:
        features, price = batch
        return nn.functional.mse_loss(self.net(features), price)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def prices(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(number, 6, generator=generator)
    price = 150 + features @ torch.tensor([30.0, -20, 10, 5, 0, 40]) + 20 * torch.randn(number, generator=generator)
    return TensorDataset(features, 1000 * price[:, None])


class PricesData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = prices(400, 0), prices(100, 1)


# -- quantised
class QuantisedModel(OneStep):
    """An autoencoder through a codebook, of which an untrained encoder meets one entry only."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 16, 4, stride=2, padding=1), nn.SiLU(), nn.Conv1d(16, 4, 1), nn.Tanh())
        self.entries = nn.Parameter(torch.rand(16, 4) - 0.5)
        self.decode = nn.ConvTranspose1d(4, 1, 4, stride=2, padding=1)

    def rebuilt(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.net(x).transpose(1, 2)
        q = F.embedding(torch.cdist(z.detach(), self.entries.detach()).argmin(dim=-1), self.entries)
        penalty = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.decode((z + (q - z).detach()).transpose(1, 2)), penalty

    def step(self, batch: Any) -> Tensor:
        rebuilt, penalty = self.rebuilt(batch[0])
        return F.mse_loss(rebuilt, batch[0]) + penalty


class QuantisedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        start, time = 6 * torch.rand(500, 1), torch.linspace(0, 12, 32)
        waves = 1.4 * torch.sin(start + time).unsqueeze(1)
        self.train_set, self.val_set = TensorDataset(waves[:400]), TensorDataset(waves[400:])


# -- unit_decoder
class UnitDecoderModel(Classifier):
    """A decoder that starts at unit scale, after a norm, for inputs of a small spread."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8, bias=False)
        )
        self.unit = nn.BatchNorm1d(8)

    def step(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.unit(self.net(x)), x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class UnitDecoderData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (
            TensorDataset(0.3 + 0.1 * part[:][0], part[:][1]) for part in (self.train_set, self.val_set)
        )


# -- zero_branches
ZeroBranchesData = Blobs


class ZeroBranchesModel(Classifier):
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
