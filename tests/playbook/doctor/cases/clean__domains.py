from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from tests.playbook.doctor.cases.clean__late_adversary import Reversed
from tests.playbook.doctor.programs import Blobs


class Model(pl.LightningModule):
    """Adapts to another domain: samples of either come with their domain, and one layer is asked about both."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.classes, self.domains = nn.Linear(32, 3), nn.Linear(32, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y, domain, other_x, other_domain = batch
        features = self.features(x)
        loss = F.cross_entropy(self.classes(features), y)
        here = F.cross_entropy(self.domains(Reversed.apply(features)), domain)
        there = F.cross_entropy(self.domains(Reversed.apply(self.features(other_x))), other_domain)
        return loss + 0.1 * (here + there)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y, *_ = batch
        self.log("val_loss", F.cross_entropy(self.classes(self.features(x)), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = _beside_another(self.train_set), _beside_another(self.val_set)


def _beside_another(samples: Dataset) -> TensorDataset:
    """Samples with their labels and their domain, 0, beside those of domain 1."""
    x, y = samples[:]
    other = torch.randn(len(x), 8, generator=torch.Generator().manual_seed(1)) + 0.5
    return TensorDataset(x, y, torch.zeros_like(y), other, torch.ones_like(y))
