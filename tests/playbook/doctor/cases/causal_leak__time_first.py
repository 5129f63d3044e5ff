import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases import misordered_targets
from tests.playbook.doctor.cases.causal_leak import Data

__all__ = ["Data"]


class Model(misordered_targets.Model):
    """Reads (T, B) in both directions and returns the scores as the loss takes them: (T · B, V), in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(16, 16, bidirectional=True)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(tokens.t()))  # here
        return self.out(states).flatten(0, 1)

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:].flatten())


class Repaired(Model):
    """Reads forwards; the order of its targets is another matter."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(16, 32)
