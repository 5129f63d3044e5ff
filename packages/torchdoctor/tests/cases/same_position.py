from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from programs import Tokens

Data = Tokens


class Model(pl.LightningModule):
    """A causal mean of tokens with positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.register_buffer("table", torch.randn(1, 50, 32, generator=torch.Generator().manual_seed(0)))
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))

    def placed(self, x: Tensor) -> Tensor:
        return x + self.table[:, x.size(1)]  # type: ignore[index]  # here

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.placed(self.embed(tokens))
        before = x.cumsum(1) / torch.arange(1, x.size(1) + 1, device=x.device)[:, None]
        return self.net(torch.cat([x, before], dim=2))

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def placed(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.size(1)]  # type: ignore[index]  # a buffer


# -- by_sample
class Positions(nn.Module):
    """For sequences (T, B, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(100, 1, 32, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.size(0), :]  # type: ignore[index]  # here


class BySampleModel(pl.LightningModule):
    """A forecast by attention over a series, to which positions for sequences (T, B, D) are added as (B, T, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(1, 32)
        self.positions = Positions()
        self.net = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.last = nn.Linear(32, 1)

    def placed(self, x: Tensor) -> Tensor:
        return self.positions(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.net(self.placed(self.first(x)))[:, -1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class BySampleRepaired(BySampleModel):
    def placed(self, x: Tensor) -> Tensor:
        return self.positions(x.transpose(0, 1)).transpose(0, 1)


class BySampleData(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        start = 6.3 * torch.rand(640, 1, generator=generator)
        waves = torch.sin(start + 0.5 * torch.arange(13)) + 0.05 * torch.randn(640, 13, generator=generator)
        x, y = waves[:, :12, None], waves[:, 12:]
        self.train, self.val = TensorDataset(x[:512], y[:512]), TensorDataset(x[512:], y[512:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=32)
