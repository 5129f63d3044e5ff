from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Masked(nn.Linear):
    """A linear layer of which some weights count as zero."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask.float())

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight * self.mask, self.bias)


class Model(OneStep):
    """Each answer from those before it: its target is the input itself, which it does not see (Germain et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        answer, unit = torch.arange(12), torch.arange(66) % 11
        self.net = nn.Sequential(Masked(unit[:, None] >= answer), nn.ReLU(), Masked(answer[:, None] > unit))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(2 * x - 1)

    def step(self, batch: Any) -> Tensor:
        (answers,) = batch
        return F.binary_cross_entropy_with_logits(self(answers), answers)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        answers = (torch.rand(1000, 12) < torch.sigmoid(torch.randn(1000, 3) @ torch.randn(3, 12))).float()
        self.train_set, self.val_set = TensorDataset(answers[:800]), TensorDataset(answers[800:])
