import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Takes each sequence's last results, of which the backward ones have read one step."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, 16, batch_first=True, bidirectional=True)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        lengths = 4 + torch.arange(len(x)) % 5
        packed, h_n = self.rnn(pack_padded_sequence(x.unsqueeze(2), lengths, batch_first=True, enforce_sorted=False))
        states, _ = pad_packed_sequence(packed, batch_first=True)
        return self.net(self.read(states, h_n, lengths))

    def read(self, states: Tensor, h_n: Tensor, lengths: Tensor) -> Tensor:
        return states[torch.arange(len(states)), lengths - 1]  # here


class Repaired(Model):
    def read(self, states: Tensor, h_n: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([h_n[-2], h_n[-1]], dim=1)
