from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from programs import Tokens

Data = Tokens


class Model(pl.LightningModule):
    """A block of attention with a cache, in which a piece of text sees only the beginning of what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.place = nn.Embedding(32, 32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens: Tensor, past: Any = None) -> Any:
        filled = 0 if past is None else past[0].shape[1]
        x = self.embed(tokens) + self.place(torch.arange(filled, filled + tokens.shape[1], device=tokens.device))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        scores = q @ k.transpose(1, 2) / 32**0.5
        scores = scores.masked_fill(~self.seen(q, k), -torch.inf)
        return self.out(x + scores.softmax(-1) @ v), (k, v)

    def seen(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        logits, _ = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Repaired(Model):
    def seen(self, q: Tensor, k: Tensor) -> Tensor:
        num, length = q.shape[1], k.shape[1]
        return torch.ones(num, length, dtype=torch.bool, device=q.device).tril(length - num)


# -- padding
class PaddingModel(Repaired):
    """Padding stands in front, where the causal mask does not hide it."""

    def forward(self, tokens: Tensor) -> Any:
        real = tokens != 0
        x = self.embed(tokens) + self.place((real.cumsum(1) - 1).clamp(min=0))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 32**0.5
        scores = scores.masked_fill(~(self.seen(q, k) & self.shown(real)), -torch.inf)
        return self.out(x + scores.softmax(-1) @ v)  # here

    def shown(self, real: Tensor) -> Tensor:
        return torch.ones_like(real)[:, None]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


class PaddingRepaired(PaddingModel):
    def shown(self, real: Tensor) -> Tensor:
        return real[:, None] | torch.eye(real.shape[1], dtype=torch.bool, device=real.device)


class PaddingData(pl.LightningDataModule):
    """Numbers from 1 to 11 that go up by one or two, 4 to 14 of them, behind zeros."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 3, (300, 14), generator=generator)
        tokens = 1 + (torch.randint(0, 11, (300, 1), generator=generator) + steps.cumsum(1)) % 11
        lengths = torch.randint(4, 15, (300, 1), generator=generator)
        tokens = tokens.masked_fill(torch.arange(14) < 14 - lengths, 0)
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


# -- positions
PositionsData = Data


class PositionsModel(Repaired):
    """Positions begin anew with every piece; the cache is a dict that the model fills."""

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        return {}

    def forward(self, tokens: Tensor, cache: dict[str, Tensor] | None = None) -> Any:
        start = self.start(cache)
        x = self.embed(tokens)
        x = x + self.place(torch.arange(start, start + tokens.shape[1], device=tokens.device))  # here
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if cache is not None:
            k = cache["k"] = torch.cat([cache["k"], k], dim=1) if cache else k
            v = cache["v"] = torch.cat([cache["v"], v], dim=1) if "v" in cache else v
        mask = self.seen(q, k)
        return self.out(x + F.scaled_dot_product_attention(q, k, v, mask))

    def start(self, cache: dict[str, Tensor] | None) -> int:
        return 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class PositionsRepaired(PositionsModel):
    def start(self, cache: dict[str, Tensor] | None) -> int:
        return cache["k"].shape[1] if cache else 0
