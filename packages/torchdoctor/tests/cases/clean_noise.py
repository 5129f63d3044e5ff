"""Randomness that belongs where it is: in training alone, or in evaluation too."""

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier, OneStep


# -- dequantised
class Flow(nn.Module):
    """Fills the steps between pixels with uniform noise, in evaluation as well, as its likelihood needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x * 255 + torch.rand_like(x)) / 256)


class DequantisedModel(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = Flow()


class DequantisedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for dataset in (self.train_set, self.val_set):
            x, y = dataset.tensors  # type: ignore[attr-defined]
            dataset.tensors = (((x + 5) * 25).round().clamp(0, 255) / 255, y)  # type: ignore[attr-defined]


# -- monte_carlo_dropout
MonteCarloDropoutData = Blobs


class MonteCarloDropoutModel(Classifier):
    """Averages over dropout in evaluation, to know how sure it is (Gal and Ghahramani 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        for part in self.net:
            if isinstance(part, nn.Dropout):
                part.train()
        probabilities = torch.stack([self.net(x).softmax(1) for _ in range(5)]).mean(0)
        self.log("val/loss", F.nll_loss(probabilities.log(), y))


# -- noise_hook
NoiseHookData = Blobs


class NoiseHookModel(Classifier):
    """Adds noise on the device, while training alone."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        return (x + 0.1 * torch.randn_like(x) if self.training else x), y


# -- numpy_noise
NumpyNoiseData = Blobs


class NumpyNoiseModel(pl.LightningModule):
    """Inputs with noise of NumPy's, and no validation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        noise = torch.from_numpy(np.random.default_rng(np.random.randint(2**31)).normal(0, 0.3, x.shape)).float()
        return F.cross_entropy(self.net(x + noise), y)

    def configure_optimizers(self) -> Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


# -- queue_of_keys
QueueOfKeysData = Blobs


class Queue(nn.Module):
    keys: Tensor
    pointer: Tensor

    def __init__(self, size: int = 200) -> None:
        super().__init__()
        self.register_buffer("keys", F.normalize(torch.randn(size, 3), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        start = int(self.pointer)
        self.keys[start : start + len(keys)] = keys
        self.pointer.fill_((start + len(keys)) % len(self.keys))


class QueueOfKeysModel(Classifier):
    """Contrast with earlier samples: training and validation each keep a ring of keys and the place of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.train_queue, self.val_queue = Queue(), Queue()

    def contrast(self, batch: Any, queue: Queue) -> Tensor:
        x, _ = batch
        first, second = (F.normalize(self(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        second = second.detach()
        others = first @ queue.keys.clone().T
        logits = torch.cat([(first * second).sum(1, keepdim=True), others], dim=1) / 0.2
        queue.push(second)
        return F.cross_entropy(logits, logits.new_zeros(len(x), dtype=torch.long))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.contrast(batch, self.train_queue)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.contrast(batch, self.val_queue))


# -- rate_of_the_caller
class RateOfTheCallerModel(pl.LightningModule):
    """Drops at the rate that a step asks for, which is 0 where it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor, rate: float = 0.0) -> Tensor:
        return self.second(F.dropout(self.first(x).relu(), rate))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x, 0.3), y)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class RateOfTheCallerData(Blobs):
    val_dataloader = None  # type: ignore[assignment]  # nothing is validated


# -- sampled_codes
class SampledCodesModel(pl.LightningModule):
    """A variational autoencoder of a graph: products of codes, drawn with a spread of about one, tell its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(8, 32), nn.Linear(32, 16), nn.Linear(32, 16)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        features, edges = batch
        hidden = self.body(edges @ features / edges.sum(2, keepdim=True)).relu()
        mean, spread = self.mean(hidden), self.spread(hidden)
        codes = torch.randn_like(spread).mul(spread.exp()).add(mean)
        divergence = -0.5 * (1 + 2 * spread - mean**2 - (2 * spread).exp()).sum(2).mean()
        weight = torch.tensor(3.0, device=edges.device)
        loss = F.binary_cross_entropy_with_logits(codes @ codes.transpose(1, 2), edges, pos_weight=weight)
        return loss + divergence / edges.shape[1]

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class SampledCodesData(pl.LightningDataModule):
    """Graphs of 20 nodes of two kinds, which mostly know their own."""

    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(0)
        kinds = torch.randint(0, 2, (160, 20), generator=generator)
        alike = kinds[:, :, None] == kinds[:, None]
        edges = (torch.rand(160, 20, 20, generator=generator) < torch.where(alike, 0.5, 0.1)).triu(1).float()
        edges = edges + edges.transpose(1, 2) + torch.eye(20)
        features = torch.randn(160, 20, 8, generator=generator) + kinds[:, :, None]
        return DataLoader(TensorDataset(features, edges), batch_size=16, shuffle=True)


# -- two_views
class TwoViewsModel(Classifier):
    """Contrastive: validation needs two random views too."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (a, b), _ = batch
        similar = F.normalize(self(a), dim=1) @ F.normalize(self(b), dim=1).T
        return F.cross_entropy(similar / 0.5, torch.arange(len(a), device=a.device))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Views(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return tuple(self.x[i] + 0.2 * torch.randn(8) for _ in range(2)), self.y[i]


class TwoViewsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Views(self.train_set), Views(self.val_set)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, num_workers=2)
