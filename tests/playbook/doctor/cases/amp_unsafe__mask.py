import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(1, 48)
        self.net = nn.Linear(16, 3)

    def fill(self, scores: Tensor) -> float:
        return -1e9

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.unsqueeze(-1)).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 4
        hidden = torch.ones(8, 8, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(hidden, self.fill(scores))  # here
        return self.net((scores.softmax(-1) @ v).mean(1))


class Repaired(Model):
    def fill(self, scores: Tensor) -> float:
        return torch.finfo(scores.dtype).min
