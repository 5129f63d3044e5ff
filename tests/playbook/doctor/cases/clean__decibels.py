from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Takes noise away; the loss is a hundred minus decibels, with a little of the squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 64))

    def step(self, batch: Any) -> Tensor:
        noisy, clean = batch
        guess = self(noisy)
        scale = (guess * clean).sum(1, keepdim=True) / clean.square().sum(1, keepdim=True)
        wanted = scale * clean
        ratio = wanted.square().sum(1) / ((guess - wanted).square().sum(1) + 1e-8)
        return 1e-3 * F.mse_loss(guess, clean) + 100 - 10 * (ratio + 1e-8).log10().mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        phase, pitch = 6 * torch.rand(2, 500, 1, generator=generator)
        clean = torch.sin(phase + (1 + pitch) * torch.linspace(0, 6, 64))
        noisy = clean + 0.5 * torch.randn(500, 64, generator=generator)
        self.train_set = TensorDataset(noisy[:400], clean[:400])
        self.val_set = TensorDataset(noisy[400:], clean[400:])
