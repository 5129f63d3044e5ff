from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    """Sorts its sequences by length, which every layer gets in that order, and their scores back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths, order = lengths.sort(descending=True)
        _, hidden = self.encoder(pack_padded_sequence(x[order], lengths.cpu(), batch_first=True))
        return self.net(hidden[0])[order.argsort()], hidden[0]

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        logits, code = self(x, lengths)
        return F.cross_entropy(logits, y) + 1e-3 * code.square().mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        lengths = torch.randint(3, 11, (500,), generator=generator)
        x = torch.randn(500, 10, 4, generator=generator)
        x[:, :, :3] += F.one_hot(y, 3)[:, None]
        x *= (torch.arange(10) < lengths[:, None])[:, :, None]
        self.train_set = TensorDataset(x[:400], lengths[:400], y[:400])
        self.val_set = TensorDataset(x[400:], lengths[400:], y[400:])
