import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier


class Model(Classifier):
    """The first step tells the class."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)
        return self.out(states[:, -1, :])  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.rnn(x)
        return self.out(torch.cat([last[-2], last[-1]], dim=1))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 12, 8, generator=generator)
        x[:, 0, :3] += 3 * nn.functional.one_hot(y, 3)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


# -- last_state
LastStateData = Data


class LastStateModel(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.rnn(x)
        return self.out(last[-1].repeat(1, 2))  # here


class LastStateRepaired(Repaired):
    pass


# -- packed
PackedData = Blobs


class PackedModel(Classifier):
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


class PackedRepaired(PackedModel):
    def read(self, states: Tensor, h_n: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([h_n[-2], h_n[-1]], dim=1)


# -- time_first
TimeFirstData = Data


class TimeFirstRepaired(Classifier):
    """The last state of the forward half, and the first of the backward one."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 16, bidirectional=True)
        self.out = nn.Linear(32, 3)

    def features(self, states: Tensor) -> Tensor:
        return nn.functional.pad(states[-1, :, :16], (0, 16)) + nn.functional.pad(states[0, :, 16:], (16, 0))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.features(self.rnn(x.transpose(0, 1))[0]))


class TimeFirstModel(TimeFirstRepaired):
    def features(self, states: Tensor) -> Tensor:
        return states[-1]  # here
