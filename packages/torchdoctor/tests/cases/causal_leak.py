from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cases import misordered_targets
from programs import Tokens

Data = Tokens


class Model(pl.LightningModule):
    """Predicts the next token; the convolution looks to both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)  # here
        self.out = nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        x = self.conv(x)
        return self.out(x.transpose(1, 2))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.conv(F.pad(self.embed(tokens).transpose(1, 2), (2, 0)))
        return self.out(x.transpose(1, 2))


# -- channels_first
ChannelsFirstData = Tokens


class ChannelsFirstModel(Model):
    """Its scores come as (B, K, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 12, 3, padding=1)  # here

    def forward(self, tokens: Tensor) -> Tensor:
        return self.conv(self.embed(tokens).transpose(1, 2))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:])


class ChannelsFirstRepaired(ChannelsFirstModel):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.conv(F.pad(self.embed(tokens).transpose(1, 2), (2, 0)))


# -- ended
class EndedModel(pl.LightningModule):
    """A decoder reads a start mark and words, and is to predict the words and an end mark; both are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(15, 32, padding_idx=0)
        self.net = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 15)

    def mask(self, tokens: Tensor) -> Tensor | None:
        return None

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.net(self.embed(tokens), self.mask(tokens), src_key_padding_mask=(tokens == 0).float() * -1e9)  # here
        return self.out(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        read, wanted = batch
        return F.cross_entropy(self(read).flatten(0, 1), wanted.flatten(), ignore_index=0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class EndedRepaired(EndedModel):
    def mask(self, tokens: Tensor) -> Tensor | None:
        return nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)


class EndedData(pl.LightningDataModule):
    """Numbers that go up by one or two, 4 to 10 a sentence; 0 pads, 13 begins and 14 ends it."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 3, (300, 10), generator=generator)
        words = 1 + (torch.randint(0, 12, (300, 1), generator=generator) + steps.cumsum(1)) % 12
        lengths = torch.randint(4, 11, (300, 1), generator=generator)
        places = torch.arange(11)
        read = torch.cat([torch.full((300, 1), 13), words], 1).where(places <= lengths, 0)
        wanted = torch.cat([words, torch.zeros(300, 1).long()], 1).where(places < lengths, 14 * (places == lengths))
        self.train_set, self.val_set = TensorDataset(read[:240], wanted[:240]), TensorDataset(read[240:], wanted[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


# -- flattened
FlattenedData = Tokens
FlattenedRepaired = Repaired


class FlattenedModel(Model):
    """Returns the scores as the loss takes them: (B · T, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3, padding=1)  # here

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        x = self.conv(x).transpose(1, 2)
        return self.out(x).flatten(0, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:].flatten())


# -- time_first
TimeFirstData = Tokens


class TimeFirstModel(misordered_targets.Model):
    """Reads (T, B) in both directions and returns the scores as the loss takes them: (T · B, V), in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(16, 16, bidirectional=True)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(tokens.t()))  # here
        return self.out(states).flatten(0, 1)

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:].flatten())


class TimeFirstRepaired(TimeFirstModel):
    """Reads forwards; the order of its targets is another matter."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(16, 32)


# -- product
ProductData = Tokens


class ProductModel(Model):
    """Attends to the whole text."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 48, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2).chunk(3, dim=2)
        return self.out(F.scaled_dot_product_attention(query, key, value))  # here


class ProductRepaired(ProductModel):
    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2).chunk(3, dim=2)
        return self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True))
