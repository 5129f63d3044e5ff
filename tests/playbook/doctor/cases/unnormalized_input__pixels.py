from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


class Squares(Dataset):
    def __init__(self, n: int, seed: int, top: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 3, n)
        self.images = rng.integers(0, 60, (n, 8, 8)).astype(np.uint8)
        for image, y in zip(self.images, self.y, strict=True):
            image[2 * y : 2 * y + 3] += 190
        self.top = top

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        x = torch.from_numpy(self.images[i]).float()  # here
        return {"x": x[None] / self.top, "y": int(self.y[i])}


class Pairs(Blobs):
    top = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Squares(200, 0, self.top), Squares(40, 1, self.top)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch["x"], batch["y"]


class Data(Pairs):
    pass


class RepairedData(Pairs):
    top = 255.0
