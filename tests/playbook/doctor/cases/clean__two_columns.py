from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Who likes what: the users' features tell of the users, and hardly of what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(30, 8)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        features, item, liked = batch
        logits = self.net(torch.cat([features, self.items(item)], dim=1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, liked)


class Likes(Dataset):
    def __init__(self, number: int, seed: int) -> None:
        world, generator = torch.Generator().manual_seed(9), torch.Generator().manual_seed(seed)
        taste, trait = torch.randn(50, 8, generator=world), torch.randn(30, 8, generator=world)
        user = torch.randint(0, 50, (number,), generator=generator)
        self.item = torch.randint(0, 30, (number,), generator=generator)
        self.features = taste[user] + 0.05 * torch.randn(number, 8, generator=generator)
        chance = torch.sigmoid((taste[user] * trait[self.item]).sum(1))
        self.liked = (torch.rand(number, generator=generator) < chance).float()

    def __len__(self) -> int:
        return len(self.liked)

    def __getitem__(self, i: int) -> Any:
        return self.features[i], self.item[i], self.liked[i]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Likes(1000, 0), batch_size=50, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Likes(200, 1), batch_size=50)
