from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Scenes(Dataset):
    """Bright squares on a dark ground, and masks of them."""

    white = 255  # of masks that are 0 and 255, as many files have it

    def __init__(self, number: int) -> None:
        self.masks = torch.zeros(number, 8, 8, dtype=torch.uint8)
        for index, (row, column) in enumerate(torch.randint(0, 4, (number, 2)).tolist()):
            self.masks[index, row : row + 4, column : column + 4] = 1
        self.images = self.masks[:, None] + 0.3 * torch.randn(number, 1, 8, 8) - 0.25

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        mask = (self.masks[index] // self.white).long()  # here
        return self.images[index], mask


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(1, 2, 3, padding=1)  # type: ignore[assignment]

    def step(self, batch: Any) -> Tensor:
        image, mask = batch
        return F.cross_entropy(self(image), mask)


class Data(Blobs):
    kind: type[Scenes] = Scenes

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.kind(400), self.kind(100)


class _Whole(Scenes):
    white = 1


class RepairedData(Data):
    kind = _Whole
