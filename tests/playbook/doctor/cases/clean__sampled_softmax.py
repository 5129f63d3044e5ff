from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Tells the class from others that are drawn, and stands first among them (sampled softmax)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.items = nn.Embedding(50, 16)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        others = torch.randint(0, 50, (len(y), 9), device=y.device)
        candidates = torch.cat([y[:, None], others], dim=1)  # (B, 10)
        scores = (self.items(candidates) * self.net(x)[:, None]).sum(2)
        return F.cross_entropy(scores, y.clone().fill_(0))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 50, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator) + torch.randn(50, 8, generator=generator)[y]
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
