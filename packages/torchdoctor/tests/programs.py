"""A plain module and plain data, as people write them, that the cases spoil and repair."""

import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="the review copies its process (os.fork), which this system cannot"
)


@dataclass
class Result:
    """What a command left: exit code and output."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


def sampled(cases: Iterable[Any], sample: Container[Any], weekly: Container[Any] = ()) -> list[Any]:
    """Parameters of a test: those in the sample run by default, others in CI alone, and some only once a week."""
    slow, rare = [pytest.mark.slow], [pytest.mark.slow, pytest.mark.weekly]
    return [case if case in sample else pytest.param(case, marks=rare if case in weekly else slow) for case in cases]


def python_path() -> str:
    """Where a process finds the cases, and the package unless it is installed."""
    here = Path(__file__).parent
    return os.pathsep.join([str(here), str(here.parent)])


class Classifier(pl.LightningModule):
    """A perceptron over 8 features and 3 classes."""

    outputs = 3

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, self.outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class OneStep(Classifier):
    """Validates by the loss that it trains with: `step`."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Blobs(pl.LightningDataModule):
    """Three normal clouds in 8 dimensions, in random order."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator)
        x[:, :3] += 2.0 * F.one_hot(y, 3)
        self.train_set: Dataset = TensorDataset(x[:400], y[:400])
        self.val_set: Dataset = TensorDataset(x[400:], y[400:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class Sequences(Blobs):
    """Sequences of 3 to 10 steps, (10, 4) with zeros behind their ends, with their lengths and 3 classes."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        lengths = torch.randint(3, 11, (500,), generator=generator)
        x = torch.randn(500, 10, 4, generator=generator)
        x[:, :, :3] += F.one_hot(y, 3)[:, None]
        x *= (torch.arange(10) < lengths[:, None])[:, :, None]
        self.train_set = TensorDataset(x[:400], lengths[:400], y[:400])
        self.val_set = TensorDataset(x[400:], lengths[400:], y[400:])


class Tokens(pl.LightningDataModule):
    """Numbers that go up by one or two."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 3, (300, 14), generator=generator)
        tokens = (torch.randint(0, 12, (300, 1), generator=generator) + steps.cumsum(1)) % 12
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


def scaled_positions(number: int, scale: Tensor) -> Tensor:
    """Positions that are made on the CPU, whatever the scale's device, and sent there in the end."""
    positions = torch.arange(number)
    return (positions * scale.to(positions.device)).to(scale.device)


class Decorrelation(nn.Module):
    """The distance of features' correlations from none, on a device that the caller chooses."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def forward(self, features: Tensor) -> Tensor:
        normal = (features - features.mean(0)) / (features.std(0) + 1e-3)
        correlations = normal.T @ normal / len(features)
        return (correlations - torch.eye(len(correlations), device=self.device)).square().mean()
