"""Attention and masks, in which a place sees just what it may see."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cases import causal_leak, shifted_causal_mask, unread_direction
from programs import Blobs, Classifier, OneStep, Tokens


# -- as_many_steps_as_classes
class AsManyStepsAsClassesModel(pl.LightningModule):
    """A decoder that cuts its last input itself; there are as many classes as elements in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.net = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.net(self.embed(tokens[:, :-1]))[0])

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class AsManyStepsAsClassesData(Tokens):
    """Of 12 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (TensorDataset(part[:][0][:, :12]) for part in (self.train_set, self.val_set))


# -- attention_maps
AttentionMapsData = Tokens


class Attention(nn.Module):
    """Gives its causal attention weights (B, 1, T, T) beside the scores, as older Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(12, 16), nn.Parameter(0.1 * torch.randn(13, 16))
        self.qk, self.out = nn.Linear(16, 32), nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(tokens) + self.positions
        query, key = self.qk(x).chunk(2, -1)
        future = torch.ones(13, 13, dtype=torch.bool, device=x.device).triu(1)
        weights = (query @ key.transpose(1, 2) / 4).masked_fill(future, -torch.inf).softmax(-1)
        return self.out(x + weights @ x), weights[:, None]


class AttentionMapsModel(causal_leak.Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = Attention()
        del self.embed, self.conv, self.out

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        scores, _ = self.net(tokens[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


# -- autoregressive
class Masked(nn.Linear):
    """A linear layer of which some weights count as zero."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.float())

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight * self.mask, self.bias)


class AutoregressiveModel(OneStep):
    """Each answer from those before it: its target is the input itself, which it does not see (Germain et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        answer, unit = torch.arange(12), torch.arange(66) % 11
        self.net = nn.Sequential(Masked(unit[:, None] >= answer), nn.ReLU(), Masked(answer[:, None] > unit))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(2 * x - 1)

    def step(self, batch: Any) -> Tensor:
        (answers,) = batch
        return F.binary_cross_entropy_with_logits(self(answers), answers)


class AutoregressiveData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        answers = (torch.rand(1000, 12) < torch.sigmoid(torch.randn(1000, 3) @ torch.randn(3, 12))).float()
        self.train_set, self.val_set = TensorDataset(answers[:800]), TensorDataset(answers[800:])


# -- last_places
LastPlacesData = shifted_causal_mask.PaddingData


class LastPlacesModel(pl.LightningModule):
    """A recommender: histories end at the last place, zeros stand in front and are hidden, and places are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.item, self.place = nn.Embedding(12, 32, padding_idx=0), nn.Embedding(14, 32)
        nn.init.normal_(self.item.weight, std=0.05)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, nn.LayerNorm(32), enable_nested_tensor=False)

    def forward(self, items: Tensor) -> Tensor:
        x = self.item(items) + self.place(torch.arange(items.shape[1], device=items.device))
        hidden = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool, device=items.device).triu(1)
        itself = torch.eye(items.shape[1], dtype=torch.bool, device=items.device)
        hidden = hidden | ((items == 0)[:, None] & ~itself)
        x = self.encoder(x, mask=hidden.repeat_interleave(2, dim=0))
        return x @ self.item.weight.T

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (items,) = batch
        return F.cross_entropy(self(items[:, :-1]).flatten(0, 1), items[:, 1:].flatten(), ignore_index=0)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


# -- one_condition
OneConditionData = Blobs


class OneConditionModel(Classifier):
    """Attends to one condition from several places, and from one place to several."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.places = nn.Parameter(nn.init.normal_(self.embed.weight.new_empty(8, 16), std=0.1))
        self.condition = nn.Linear(8, 16)
        self.value = nn.Linear(16, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.unsqueeze(2)) + self.places
        condition = self.condition(x).unsqueeze(1)
        tokens = tokens + F.scaled_dot_product_attention(tokens, condition, self.value(condition))
        return self.net(F.scaled_dot_product_attention(condition, tokens, self.value(tokens))[:, 0])


# -- sets
class SetsModel(pl.LightningModule):
    """The odd one of a set, which always comes last: the net has no positions and cannot know."""

    def __init__(self) -> None:
        super().__init__()
        self.member = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.score = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.member(x)  # (B, 6, 32)
        everyone = x.mean(1, keepdim=True).expand_as(x)
        return self.score(torch.cat([x, everyone], dim=2).relu())[:, :, 0]  # (B, 6)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class SetsData(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 1, 8, generator=generator) + 0.5 * torch.randn(500, 6, 8, generator=generator)
        x[:, -1] = torch.randn(500, 8, generator=generator)
        y = torch.full((500,), 5)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


# -- soft_assignments
SoftAssignmentsData = unread_direction.Data


class Clusters(nn.Module):
    """Sums what lies beside each of K centres (NetVLAD, Arandjelović et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.assign, self.centres = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.assign(x).softmax(2)  # (B, T, K)
        beside = x[:, :, None] - self.centres  # (B, T, K, D)
        return F.normalize((weights[..., None] * beside).sum(1), dim=2).mean(1)


class Slots(nn.Module):
    """Slots compete for the steps, and take the mean of what they get (Locatello et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.query, self.key = nn.Parameter(torch.randn(4, 8)), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        slots = self.slots.expand(len(x), 4, 8)
        for _ in range(2):
            weights = (self.query(slots) @ self.key(x).transpose(1, 2)).softmax(1)  # (B, K, T)
            slots = slots + weights @ x / (weights.sum(2, keepdim=True) + 1e-6)
        return slots.mean(1)


class Capsules(nn.Module):
    """Each step sends its vote to the capsules that agree with it (Sabour et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.votes = nn.Linear(8, 4 * 8)

    def forward(self, x: Tensor) -> Tensor:
        votes = self.votes(x).unflatten(2, (4, 8))  # (B, T, K, D)
        scores = torch.zeros(votes.shape[:3], device=x.device)
        sums = (scores.softmax(2)[..., None] * votes).sum(1, keepdim=True).tanh()
        scores = scores + (votes * sums).sum(3)
        return (scores.softmax(2)[..., None] * votes).sum(1).mean(1)


class SoftAssignmentsModel(Classifier):
    """Softmax over clusters, slots and capsules, whose results are summed over the steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.net = nn.ModuleList([Clusters(), Slots(), Capsules()]), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.cat([part(x) for part in self.parts], dim=1))
