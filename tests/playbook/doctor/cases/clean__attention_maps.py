from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.causal_leak import Data
from tests.playbook.doctor.cases.causal_leak import Model as NextToken

__all__ = ["Data"]


class Attention(nn.Module):
    """Gives its causal attention weights (B, 1, T, T) beside the scores, as older Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(12, 16), nn.Parameter(0.1 * torch.randn(13, 16))
        self.qk, self.out = nn.Linear(16, 32), nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(tokens) + self.positions
        query, key = self.qk(x).chunk(2, -1)
        future = torch.ones(13, 13, dtype=torch.bool, device=x.device).triu(1)
        weights = (query @ key.transpose(1, 2) / 4).masked_fill(future, -torch.inf).softmax(-1)
        return self.out(x + weights @ x), weights[:, None]


class Model(NextToken):
    def __init__(self) -> None:
        super().__init__()
        self.net = Attention()
        del self.embed, self.conv, self.out

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        scores, _ = self.net(tokens[:, :-1])
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
