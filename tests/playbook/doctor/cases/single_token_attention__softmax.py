import math

from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Attention written by hand, over one vector of all features."""

    features = 8

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(self.features, 16)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(len(x), -1, self.features))
        scores = self.query(tokens) @ self.key(tokens).transpose(1, 2) / math.sqrt(16)
        return self.out((scores.softmax(-1) @ self.value(tokens)).mean(1))  # here


class Repaired(Model):
    features = 1
