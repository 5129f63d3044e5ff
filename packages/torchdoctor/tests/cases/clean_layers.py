"""Layers that are tied, used again, optional, or take part in another way than by being called."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from programs import Blobs, Classifier, OneStep

# -- block_used_again
BlockUsedAgainData = Blobs


class BlockUsedAgainModel(Classifier):
    """Goes through one block three times, as recursive networks do, its norm among it."""

    def __init__(self) -> None:
        super().__init__()
        del self.net
        self.first = nn.Linear(8, 32)
        self.block = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(3):
            x = x + self.block(x)
        return self.head(x)


# -- choice_of_nets
class ChoiceOfNetsModel(Classifier):
    """Builds several nets, and trains the chosen one."""

    def __init__(self, name: str = "narrow") -> None:
        super().__init__()
        self.choices = {
            "narrow": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
            "wide": nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3)),
        }
        self.net = self.choices[name]


class ChoiceOfNetsData(Blobs):
    pass


# -- dropout_of_a_branch
DropoutOfABranchData = Blobs


class DropoutOfABranchModel(Classifier):
    """Has dropout for an option that is off, and some of which it takes the rate."""

    def __init__(self, is_noisy: bool = False) -> None:
        super().__init__()
        self.is_noisy = is_noisy
        self.noise, self.hidden = nn.Dropout(0.3), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_noisy:
            x = self.noise(x)
        return self.net(F.dropout(x, self.hidden.p, self.training))


# -- factorised
FactorisedData = Blobs


class FactorisedModel(Classifier):
    """Has a layer of low rank, and one whose result two others take."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(8, 4, bias=False), nn.Linear(4, 32)
        self.mean, self.scale = nn.Linear(32, 32), nn.Linear(32, 32)
        self.net = nn.Sequential(nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.down(x))
        return self.net(self.mean(x) * torch.sigmoid(self.scale(x)))


# -- limited_embedding
class LimitedEmbeddingModel(pl.LightningModule):
    """The rows of its embedding are shortened wherever they are read, in validation too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(400, 32, max_norm=1.0)
        self.out = nn.Linear(32, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.embed(words).mean(1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        words, label = batch
        return F.cross_entropy(self(words), label)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class LimitedEmbeddingData(pl.LightningDataModule):
    """Texts of six words, whose label tells from which half of the vocabulary most of them come."""

    def setup(self, stage: str) -> None:
        words = torch.randint(0, 400, (600, 6), generator=torch.Generator().manual_seed(0))
        label = ((words < 200).sum(1) > 3).long()
        self.train, self.val = TensorDataset(words[:500], label[:500]), TensorDataset(words[500:], label[500:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)


# -- masked_weights
MaskedWeightsData = Blobs


class Masked(nn.Linear):
    """As masked convolutions of autoregressive models: each pass writes the mask into the weights."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.tril_()
        return F.linear(x, self.weight, self.bias)


class MaskedWeightsModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net[0] = Masked(8, 32)


# -- mode_by_name
ModeByNameData = Blobs


class ModeByNameModel(Classifier):
    """A module whose `train` must be told the mode; Lightning calls it with the mode, or not at all."""

    def train(self, mode: bool) -> "ModeByNameModel":  # type: ignore[override]  # as people write it
        return super().train(mode)

    def eval(self) -> "ModeByNameModel":
        return self.train(False)


# -- net_argument
NetArgumentData = Blobs


class NetArgumentModel(Classifier):
    """A net among the arguments, of which save_hyperparameters keeps a copy."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        head = head or nn.Linear(32, self.outputs)
        self.save_hyperparameters(logger=False)
        self.net[2] = head


# -- normalised_weights
NormalisedWeightsData = Blobs


class NormalisedWeightsModel(OneStep):
    """Every step, also of a validation, writes prototypes of length 1: a small temperature divides cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.prototypes = nn.Linear(32, 3, bias=False)

    def step(self, batch: Any) -> Tensor:
        with torch.no_grad():
            self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
        x, y = batch
        return F.cross_entropy(self.prototypes(F.normalize(self.net(x), dim=1)) / 0.1, y)


# -- own_parameters
class Functional(nn.Module):
    """Layers that also run with other weights than their own, as in meta-learning (Finn et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(8, 32), nn.Linear(32, 3)]
        self.weights = nn.ParameterList([weight for layer in layers for weight in layer.parameters()])

    def forward(self, x: Tensor, weights: nn.ParameterList | None = None) -> Tensor:
        first, bias, second, shift = self.weights if weights is None else weights
        return F.linear(torch.relu(F.linear(x, first, bias)), second, shift)

    def parameters(self) -> nn.ParameterList:  # type: ignore[override]  # as scripts do
        return self.weights


class OwnParametersModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = Functional()  # type: ignore[assignment]


class OwnParametersData(Blobs):
    pass


# -- tied_layers
TiedLayersData = Blobs


class Loop(nn.Module):
    """One layer again and again, as in ALBERT, by a loop and by a list of its name."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layer, self.depth = nn.Linear(8, 8), depth
        self.steps = nn.Sequential(*[self.layer] * depth)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = x + self.layer(x).relu()
        return x + self.steps(x)


class Choice(nn.Module):
    def __init__(self, depth: int = 2, is_recurrent: bool = True) -> None:
        super().__init__()
        if is_recurrent:
            self.layers = nn.ModuleList([nn.Linear(8, 8)] * depth)
        else:
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


class TiedLayersModel(Classifier):
    """Layers that are repeated on purpose, have no weights or are frozen."""

    def __init__(self) -> None:
        super().__init__()
        frozen = nn.Linear(8, 8).requires_grad_(False)
        self.net = nn.Sequential(Loop(), Choice(), *[nn.ReLU()] * 2, *[frozen] * 2, nn.Linear(8, 3))


# -- tied_weights
TiedWeightsData = Blobs


class TiedWeightsModel(Classifier):
    """Two layers that have one weight."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Linear(8, 8), nn.Linear(8, 8)
        second.weight = first.weight
        self.net = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(8, 3))
