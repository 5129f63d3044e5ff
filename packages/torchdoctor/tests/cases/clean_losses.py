"""Losses in their authors' own words, over what looks like the wrong sizes, scales or functions."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from programs import Blobs, Classifier, OneStep


# -- decibels
class DecibelsModel(OneStep):
    """Takes noise away; the loss is a hundred minus decibels, with a little of the squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 64))

    def step(self, batch: Any) -> Tensor:
        noisy, clean = batch
        guess = self(noisy)
        scale = (guess * clean).sum(1, keepdim=True) / clean.square().sum(1, keepdim=True)
        wanted = scale * clean
        ratio = wanted.square().sum(1) / ((guess - wanted).square().sum(1) + 1e-8)
        return 1e-3 * F.mse_loss(guess, clean) + 100 - 10 * (ratio + 1e-8).log10().mean()


class DecibelsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        phase, pitch = 6 * torch.rand(2, 500, 1, generator=generator)
        clean = torch.sin(phase + (1 + pitch) * torch.linspace(0, 6, 64))
        noisy = clean + 0.5 * torch.randn(500, 64, generator=generator)
        self.train_set = TensorDataset(noisy[:400], clean[:400])
        self.val_set = TensorDataset(noisy[400:], clean[400:])


# -- elu_on_logits
EluOnLogitsData = Blobs


class EluOnLogitsModel(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu(self.net(x))


# -- every_pair
EveryPairData = Blobs


class EveryPairModel(OneStep):
    """An energy score: every prediction is compared with every target, by a dimension that was added for it."""

    outputs = 1

    @torch.no_grad()
    def wanted(self, x: Tensor) -> Tensor:
        return x.sum(dim=1) / 3

    def step(self, batch: Any) -> Tensor:
        wanted, said = self.wanted(batch[0]), self(batch[0]).squeeze(1)
        own = (wanted - said).abs().mean()
        return own + 0.1 * (said[:, None] - wanted).abs().mean()


# -- log_probabilities
LogProbabilitiesData = Blobs


class LogProbabilitiesModel(Classifier):
    """Log-probabilities into a cross-entropy, which leaves them as they are: not needed, but not wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(nn.LogSoftmax(dim=1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x).view(-1, 3), y)


# -- logarithm_of_a_mixture
LogarithmOfAMixtureData = Blobs


class LogarithmOfAMixtureModel(Classifier):
    """Takes the logarithm of the mean of two nets' probabilities, of which one is kept from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        mixture = (self(x).softmax(1) + self.other(x).softmax(1)) / 2
        return F.nll_loss(torch.log(mixture + 1e-6), y)


# -- nearest_points
class NearestPointsModel(OneStep):
    """Moves points until each has one of the others near it: every point with every other, on purpose (Chamfer)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        apart = (self(x.unsqueeze(-1)) - y.unsqueeze(1)).square()  # (B, N, 1) and (B, 1, N)
        return apart.amin(dim=1).mean() + apart.amin(dim=2).mean()


class NearestPointsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 12)
        y = x[:, torch.randperm(12)].sinh() / 2
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- own_dice
class OwnDiceModel(pl.LightningModule):
    """A Dice loss that checks its sizes; the rows of 0 below the squares are no padding, nor what is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1))

    def loss(self, batch: Any) -> Tensor:
        image, mask, seen = batch
        score, wanted = (x * seen[:, None] for x in (self.net(image).softmax(1), F.one_hot(mask, 4).movedim(-1, 1)))
        assert score.shape == wanted.shape
        overlap, size = (score * wanted).sum(dim=(2, 3)), (score + wanted).sum(dim=(2, 3))
        return 1 - ((2 * overlap + 1) / (size + 1)).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class OwnDiceData(Blobs):
    """A square of each of three colours."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        images, masks = 0.3 * torch.randn(120, 3, 16, 16, generator=generator), torch.zeros(120, 16, 16).long()
        corners = torch.randint(10, (120, 3, 2), generator=generator)
        for image, mask, places in zip(images, masks, corners, strict=True):
            for colour, (top, left) in enumerate(places.tolist()):
                mask[top : top + 5, left : left + 5] = colour + 1
                image[:, top : top + 5, left : left + 5] = torch.eye(3)[colour][:, None, None]
        seen = torch.rand(120, 16, 16, generator=generator) < 0.9
        self.train_set, self.val_set = (
            TensorDataset(images[part], masks[part], seen[part]) for part in (slice(96), slice(96, None))
        )


# -- policy_loss
class PolicyLossData(pl.LightningDataModule):
    """States, actions that were taken there, and what they brought."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        states = torch.randn(256, 4, generator=generator)
        actions = torch.randint(0, 2, (256,), generator=generator)
        returns = states[:, 0] + 2.0
        self.train_set = TensorDataset(states, actions, returns)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)


class PolicyLossModel(pl.LightningModule):
    """Clipped policy and value losses together, of which the first stays: a constant takes the place of the ratio's."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        states, actions, returns = batch
        chosen = self.policy(states).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        ratios = (chosen - chosen.detach()).exp()
        values = self.value(states).squeeze(-1)
        cost = torch.maximum(ratios, ratios.clamp(0.8, 1.2)) * 20
        return cost.mean() + 0.5 * F.mse_loss(values, returns)

    def configure_optimizers(self) -> Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


# -- relative_error
class RelativeErrorModel(OneStep):
    """Series of levels from 300 to 6000 are forecast in their own units, and measured by a relative error."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        guess = self(x)
        return (2 * (guess - y).abs() / (guess.abs() + y.abs() + 1e-8)).mean()


class RelativeErrorData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        level = 300 * 20 ** torch.rand(500, 1, generator=generator)
        phase = 6.28 * torch.rand(500, 1, generator=generator)
        waves = torch.sin(torch.arange(15) * 0.52 + phase) + 0.1 * torch.randn(500, 15, generator=generator)
        rows = level * (1 + 0.2 * waves)
        self.train_set = TensorDataset(rows[:400, :12], rows[:400, 12:])
        self.val_set = TensorDataset(rows[400:, :12], rows[400:, 12:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)


# -- sampled_softmax
class SampledSoftmaxModel(OneStep):
    """Tells the class from others that are drawn, and stands first among them (sampled softmax)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.items = nn.Embedding(50, 16)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        others = torch.randint(0, 50, (len(y), 9), device=y.device)
        candidates = torch.cat([y[:, None], others], dim=1)  # (B, 10)
        scores = (self.items(candidates) * self.net(x)[:, None]).sum(2)
        return F.cross_entropy(scores, y.clone().fill_(0))


class SampledSoftmaxData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 50, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator) + torch.randn(50, 8, generator=generator)[y]
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- tensordot
TensordotData = Blobs


class TensordotModel(OneStep):
    """Weighs scores by probabilities: autocast makes those single, and lets tensordot take the wider type."""

    def step(self, batch: Any) -> torch.Tensor:
        x, y = batch
        scores = self(x)
        mean = torch.tensordot(scores.softmax(1).mean(0), scores, dims=([0], [1]))
        return F.cross_entropy(scores - mean[:, None], y)
