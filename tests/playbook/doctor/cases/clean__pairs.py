from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Says whether two curves are of one kind.

    What it compares is small at first: the signs of biases decide which of the units are on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(2, 24, 5), nn.ReLU(), nn.Conv1d(24, 16, 5, stride=2), nn.ReLU())
        self.net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        bias = self.net[0].bias
        assert isinstance(bias, nn.Parameter)
        nn.init.uniform_(bias, 0.05, 0.15)
        bias.data[:20].neg_()  # as may happen, of 32

    def step(self, batch: Any) -> Tensor:
        left, right, same = batch
        a, b = (0.02 * self.encode(curve).mean(dim=-1) for curve in (left, right))
        return F.binary_cross_entropy_with_logits(self(torch.cat([(a - b).abs(), a * b], dim=1)).squeeze(1), same)


def pairs(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 6, 32)
    same = (torch.rand(number, generator=generator) < 0.5).float()
    left = torch.randint(4, (number,), generator=generator)  # a label of four kinds, beside that of two
    other = (left + torch.randint(1, 4, (number,), generator=generator)) % 4
    right = torch.where(same.bool(), left, other)

    def curves(kind: Tensor) -> Tensor:
        speeds = torch.tensor([[1.0, 2.0], [2.0, 3.0], [3.0, 1.0], [4.0, 2.0]])[kind]
        noise = torch.randn(len(kind), 2, 32, generator=generator)
        return 1.3 * torch.sin(speeds[..., None] * t) + 0.15 * noise

    return TensorDataset(curves(left), curves(right), same)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = pairs(640, 1), pairs(160, 2)
