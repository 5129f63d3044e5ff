import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.state = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.state.expand_as(x)  # here
        return self.net(x)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.state)


# -- constant
ConstantModel = Classifier


class ConstantData(Blobs):
    """Samples that differ in their targets alone."""

    def __init__(self) -> None:
        super().__init__()
        y = torch.arange(400) % 3
        self.train_set = TensorDataset(torch.ones(400, 8), y)  # here


class ConstantRepairedData(Blobs):
    pass


# -- groups
GroupsData = Blobs


class GroupsRepaired(Classifier):
    groups = 4

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False),
            nn.GroupNorm(self.groups, 32),
            nn.ReLU(),
            nn.Linear(32, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # here


class GroupsModel(GroupsRepaired):
    groups = 32


# -- norm
NormData = Blobs


class NormRepaired(Classifier):
    """Reads the features one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: nn.Module = nn.Identity()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(self.scale(x[..., None]))  # here
        return self.net(torch.tanh(states[:, -1]))


class NormModel(NormRepaired):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.LayerNorm(1)


# -- precision
PrecisionData = Blobs


class PrecisionModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.reader = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.reader(torch.zeros(len(x), 2, 8))  # here
        return self.net(states[:, -1])


class PrecisionRepaired(PrecisionModel):
    def forward(self, x: Tensor) -> Tensor:
        inputs = torch.zeros(len(x), 2, 8)
        inputs[:, 0] = x
        states, _ = self.reader(inputs)
        return self.net(states[:, -1])


# -- sizes
SizesData = Blobs


class Pool(nn.Module):
    """Asks with learned queries."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 2, 16))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query.expand(len(x), -1, -1)
        return self.attention(query, x, x)[0].mean(dim=1)


class Unasked(Pool):
    def forward(self, x: Tensor) -> Tensor:
        query = self.query.expand(len(x), -1, -1)  # here
        return self.attention(query, query, query)[0].mean(dim=1)


class SizesRepaired(Classifier):
    pool: type[Pool] = Pool

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.net = nn.Sequential(self.pool(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.embed(x.unsqueeze(-1)))


class SizesModel(SizesRepaired):
    pool = Unasked


# -- zeros
ZerosData = Blobs


class ZerosRepaired(OneStep):
    """Fills in what is missing."""

    def filled(self, x: Tensor) -> Tensor:
        return torch.where(x.isfinite(), x, torch.zeros_like(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.filled(x))


class ZerosModel(ZerosRepaired):
    def filled(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)  # here
