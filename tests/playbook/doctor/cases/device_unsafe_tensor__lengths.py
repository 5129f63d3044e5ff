from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """Lengths that come with the batch, and go with it to an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        return F.cross_entropy(self.net(self.encoder(self.packed(x, lengths))[1][0]), y)


class Model(Repaired):
    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  # here


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
