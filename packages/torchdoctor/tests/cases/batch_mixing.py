from typing import Any

from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        attention = self.gate(x).softmax(dim=0)  # here
        return self.net(x * attention)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.gate(x).softmax(dim=1))


# -- as_time
AsTimeData = Blobs


class AsTimeModel(Classifier):
    """Reads the samples of a batch, which come in random order, as one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 32, batch_first=True)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def scores(self, x: Tensor) -> Tensor:
        return self.net(self.rnn(x.unsqueeze(0))[0])  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x).squeeze()


class AsTimeRepaired(AsTimeModel):
    def scores(self, x: Tensor) -> Tensor:
        return self.net(self.rnn(x.unsqueeze(1))[0])


# -- reshape
ReshapeData = Blobs


class ReshapeModel(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        pairs = x.reshape(2, -1, 4)  # here
        x = pairs.transpose(0, 1).flatten(1)
        return self.net(x)


class ReshapeRepaired(ReshapeModel):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.reshape(-1, 2, 4).flatten(1))


# -- statistics
StatisticsData = Blobs


class StatisticsRepaired(Classifier):
    track = True

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False),
            nn.BatchNorm1d(32, track_running_stats=self.track),  # here
            nn.ReLU(),
            nn.Linear(32, 3),
        )


class StatisticsModel(StatisticsRepaired):
    track = False


# -- time_first
TimeFirstData = Blobs


class TimeFirstModel(Classifier):
    """Reads the features as a sequence, time first, so that samples are the second dimension of its results."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 3))
        self.gate = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.t().unsqueeze(-1)
        return self.net(x * self.gate(x).softmax(dim=self.axis))  # here

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self(x).mean(0), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self(x).mean(0), y))


class TimeFirstRepaired(TimeFirstModel):
    axis = 0
