from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier

USERS, ITEMS, OTHERS = 40, 30, 10


class Model(Classifier):
    """Tells what users like, one item at a time, and ranks an item among others where it validates."""

    def __init__(self) -> None:
        super().__init__()
        del self.net
        self.users, self.items = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(-1, keepdim=True)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        user, item, label = batch
        return F.binary_cross_entropy_with_logits(self(user, item), label.reshape(-1, 1).float())

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        hits = []
        for user, item, others in zip(*batch, strict=True):
            items = torch.cat([item[None], others])
            scores = self(user.expand(len(items)), items)[:, 0]
            hits.append(float(0 in scores.topk(3).indices.tolist()))
        self.log("val_hits", sum(hits) / len(hits))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        tastes = torch.randn(USERS, 3, generator=generator) @ torch.randn(3, ITEMS, generator=generator)
        user, item = (torch.randint(0, number, (600,), generator=generator) for number in (USERS, ITEMS))
        self.train_set = TensorDataset(user, item, (tastes[user, item] > 0).long())
        others = torch.randint(0, ITEMS, (USERS, OTHERS), generator=generator)
        self.val_set = TensorDataset(torch.arange(USERS), tastes.argmax(1), others)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val_set, batch_size=8)
