from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Attention over features, of which each is to be a token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).unsqueeze(1)
        return self.out(self.layer(tokens)[:, 0])  # here


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 16)
        self.places = nn.Parameter(nn.init.normal_(self.embed.weight.new_empty(8, 16), std=0.1))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.unsqueeze(2)) + self.places
        return self.out(self.layer(tokens).mean(1))
