import math

from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


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


# -- softmax
SoftmaxData = Blobs


class SoftmaxModel(Classifier):
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


class SoftmaxRepaired(SoftmaxModel):
    features = 1
