from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from torchvision.transforms import v2

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


class Bytes(Dataset):
    """Bright pixels, more of them by class."""

    def __init__(self, number: int, transform: Any, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(3, (number,), generator=generator)
        bright = torch.rand(number, 1, 8, 8, generator=generator) < 0.2 + 0.3 * self.y[:, None, None, None]
        self.x = (bright * 200 + torch.randint(50, bright.shape, generator=generator)).to(torch.uint8)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        return self.transform(self.x[i]), self.y[i]


class Data(Blobs):
    scale = False

    def __init__(self) -> None:
        super().__init__()
        self.prepared = v2.Compose([v2.ToDtype(torch.float32, scale=self.scale), v2.Normalize([0.5], [0.4])])  # here
        self.train_set, self.val_set = Bytes(400, self.prepared, 0), Bytes(100, self.prepared, 1)


class RepairedData(Data):
    scale = True
