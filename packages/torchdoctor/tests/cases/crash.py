from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from cases import clean_players
from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.net(x[:, :5])  # here


class Repaired(Classifier):
    pass


# -- last_batch
class LastBatchData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)


class LastBatchRepaired(Classifier):
    def noise(self, x: Tensor) -> Tensor:
        return torch.randn(len(x), 8)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x + 0.1 * self.noise(x).to(x)), y)


class LastBatchModel(LastBatchRepaired):
    def noise(self, x: Tensor) -> Tensor:
        return torch.randn(32, 8)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x + 0.1 * self.noise(x).to(x)), y)  # here


# -- last_batch_of_players
LastBatchOfPlayersRepaired = clean_players.TwoPlayersModel


class LastBatchOfPlayersData(clean_players.TwoPlayersData):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.points, batch_size=48, shuffle=True)


class LastBatchOfPlayersModel(LastBatchOfPlayersRepaired):
    """Gives the players their turns by Lightning's switches, which stay where an error leaves them."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        critic = self.optimizers()[1]
        self.toggle_optimizer(critic)
        x = batch[0]
        self.manual_backward(self.judged(x, 1.0) + self.judged(self.mixed(x), 0.0))
        critic.step()
        self.untoggle_optimizer(critic)
        critic.zero_grad()

    def mixed(self, x: Tensor) -> Tensor:
        share = torch.rand(48, 1, device=x.device)
        return share * x + (1 - share) * self.generator(self.noise(x)).detach()  # here


# -- last_validation_batch
class LastValidationBatchData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32)


class LastValidationBatchRepaired(Classifier):
    """An RNN that gets the state it begins with."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 3)

    def forward(self, x: Tensor, number: int | None = None) -> Tensor:
        state = torch.zeros(1, number or len(x), 32, device=x.device)
        return self.head(self.rnn(x.unsqueeze(-1), state)[1][-1])  # here


class LastValidationBatchModel(LastValidationBatchRepaired):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x, 32), y))


# -- several_values
SeveralValuesData = Blobs


class SeveralValuesModel(Classifier):
    """Logs an accuracy for each class under one name, which Lightning refuses as the epoch ends."""

    def __init__(self, average: str | None = "none") -> None:
        super().__init__()
        self.accuracy: nn.Module = MulticlassAccuracy(3, average=average)  # type: ignore[arg-type]  # one of its words

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        self.accuracy(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_accuracy", self.accuracy)  # here


class SeveralValuesRepaired(SeveralValuesModel):
    def __init__(self) -> None:
        super().__init__(average="macro")


# -- state
StateData = Blobs


class StateModel(Classifier):
    """Goes on from the state of the batch before, with its graph: no line of the program's own raises the error."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 3)
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        hidden, self.state = self.rnn(x.unsqueeze(-1), self.state)  # here
        return self.head(hidden[:, -1])


class StateRepaired(StateModel):
    def forward(self, x: Tensor) -> Tensor:
        state = self.state.detach() if self.state is not None else None
        hidden, self.state = self.rnn(x.unsqueeze(-1), state)
        return self.head(hidden[:, -1])
