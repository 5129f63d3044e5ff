import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    ramp = np.linspace(-1, 1, 16)
    x = 0.05 * rng.normal(size=(n, 16, 16, 3)) + ramp[None, :, None, None] * rng.normal(size=(n, 1, 1, 1))
    x[np.arange(n), :, :, y] += 1
    return x.astype(np.float32), y


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x, y = pictures(250, 0)
        images = torch.from_numpy(x)  # here
        self.train_set = TensorDataset(images[:200], torch.from_numpy(y[:200]))
        self.val_set = TensorDataset(images[200:], torch.from_numpy(y[200:]))


class RepairedData(Blobs):
    def setup(self, stage: str) -> None:
        x, y = pictures(250, 0)
        images = torch.from_numpy(x).permute(0, 3, 1, 2)
        self.train_set = TensorDataset(images[:200], torch.from_numpy(y[:200]))
        self.val_set = TensorDataset(images[200:], torch.from_numpy(y[200:]))
