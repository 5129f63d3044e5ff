from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """An effect on a sound, which is learned from the sound before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Tanh(), nn.Conv1d(8, 1, 9, padding=4))

    def step(self, batch: Any) -> Tensor:
        before, after = batch
        return nn.functional.l1_loss(self.net(before), after)


class Sounds(Dataset):
    """Turns the phase of both at random."""

    def __init__(self, number: int, seed: int, augment: bool) -> None:
        self.x = torch.randn(number, 1, 64, generator=torch.Generator().manual_seed(seed))
        self.augment = augment

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        if self.augment and torch.rand(()) > 0.5:
            x *= -1  # in the data themselves
        return x, torch.tanh(2 * x)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Sounds(256, 0, True), Sounds(64, 1, True)  # here


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Sounds(256, 0, True), Sounds(64, 1, False)
