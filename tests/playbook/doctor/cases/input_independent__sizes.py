import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


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


class Repaired(Classifier):
    pool: type[Pool] = Pool

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.net = nn.Sequential(self.pool(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.embed(x.unsqueeze(-1)))


class Model(Repaired):
    pool = Unasked
