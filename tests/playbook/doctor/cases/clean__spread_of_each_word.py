import torch
from torch import Tensor, nn

from tests.playbook.doctor.cases.padding_leak import Data
from tests.playbook.doctor.cases.padding_leak import Repaired as Masked

__all__ = ["Data"]


class Model(Masked):
    """Draws a code for each word, of which those of the padding are left out: how many there are moves the others."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.Embedding(30, 16)
        nn.init.constant_(self.spread.weight, -1.0)

    def forward(self, tokens: Tensor) -> Tensor:
        real = (tokens != 0).unsqueeze(-1)
        mean = self.embed(tokens)
        codes = mean + self.spread(tokens).exp() * torch.randn_like(mean)
        return self.out((codes * real).sum(1) / real.sum(1))
