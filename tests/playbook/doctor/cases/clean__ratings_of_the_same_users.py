from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier

ITEMS, UNKNOWN = 12, 0.6180339887


class Model(Classifier):
    """Predicts the ratings that are not known of those that are."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(ITEMS, 16), nn.Sigmoid(), nn.Linear(16, ITEMS))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        known, ratings, mask = batch
        return (mask * (self(known) - ratings)).square().sum() / mask.sum()

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Data(Blobs):
    """The same users with other ratings held out: some users have given none of those that are known."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        tastes = torch.rand(300, 4, generator=generator)
        ratings = tastes @ torch.rand(4, ITEMS, generator=generator)
        parts = torch.randint(0, 3, (300, ITEMS), generator=generator)
        parts[::9][parts[::9] == 0] = 1  # no known ratings
        self.sets = [self.part(ratings, parts == 0, parts == held) for held in (1, 2)]

    def part(self, ratings: Tensor, is_known: Tensor, is_held: Tensor) -> TensorDataset:
        known = torch.where(is_known, ratings, UNKNOWN + torch.arange(ITEMS) / 7)
        return TensorDataset(known, torch.where(is_held, ratings, 0.0), is_held.float())

    def train_dataloader(self) -> Any:
        return DataLoader(self.sets[0], batch_size=20, shuffle=True)

    def val_dataloader(self) -> Any:
        rows = range(0, 300, 3)
        return DataLoader(torch.utils.data.Subset(self.sets[1], rows), batch_size=20)
