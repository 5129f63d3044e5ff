from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from cases import same_position
from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        prediction = self(x)[:, :1]
        return ((prediction - y.float()) ** 2).mean()  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return ((self(x)[:, 0] - y.float()) ** 2).mean()


# -- accuracy
class AccuracyModel(Classifier):
    """Two classes from one logit, and labels (B, 1)."""

    outputs = 1

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x), y)

    def hits(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x).squeeze() > 0) == y  # here

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        hits = self.hits(*batch)
        self.log("val_accuracy", hits.float().mean())


class AccuracyRepaired(AccuracyModel):
    def hits(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x) > 0) == y


class AccuracyData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for name in ("train_set", "val_set"):
            x, y = getattr(self, name).tensors
            setattr(self, name, TensorDataset(x, (y > 0).float().unsqueeze(1)))


# -- advantage
class AdvantageModel(pl.LightningModule):
    """An actor whose advantages are computed without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def values(self, hidden: Tensor) -> Tensor:
        return self.critic(hidden)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        state, action, gain = batch
        hidden = self.body(state)
        chosen = self.actor(hidden).log_softmax(1)[torch.arange(len(action)), action]
        value = self.values(hidden)
        with torch.no_grad():
            advantage = gain - value  # here
        return -(chosen * advantage).mean() + (value.flatten() - gain).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class AdvantageRepaired(AdvantageModel):
    def values(self, hidden: Tensor) -> Tensor:
        return self.critic(hidden).squeeze(1)


class AdvantageData(pl.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(0)
        state, action = torch.randn(320, 4, generator=generator), torch.randint(0, 2, (320,), generator=generator)
        gain = state[:, 0] + ((state[:, 1] > 0).long() == action).float()
        return DataLoader(TensorDataset(state, action, gain), batch_size=32, shuffle=True)


# -- bias
class BiasModel(pl.LightningModule):
    """A factorisation whose bias of each row is (B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns, self.bias = nn.Embedding(50, 16), nn.Embedding(40, 16), nn.Embedding(50, 1)

    def biases(self, row: Tensor) -> Tensor:
        return self.bias(row)

    def error(self, batch: Any) -> Tensor:
        row, column, value = batch
        score = (self.rows(row) * self.columns(column)).sum(1)
        return (score + self.biases(row) - value).square().mean()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.error(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.error(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class BiasRepaired(BiasModel):
    def biases(self, row: Tensor) -> Tensor:
        return self.bias(row).squeeze(1)


class BiasData(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        rows, columns = (torch.randn(number, 4, generator=generator) for number in (50, 40))
        row, column = (torch.randint(0, number, (800,), generator=generator) for number in (50, 40))
        parts = (row, column, (rows[row] * columns[column]).sum(1))
        self.train = TensorDataset(*(part[:640] for part in parts))
        self.val = TensorDataset(*(part[640:] for part in parts))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=32)


# -- bootstrapped
BootstrappedData = Blobs


class BootstrappedModel(Classifier):
    """Values of the classes as actions, which a slow copy of the network helps to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.slow.load_state_dict(self.net.state_dict())

    @torch.no_grad()
    def wanted(self, x: Tensor, y: Tensor) -> Tensor:
        return (y.float() + 0.5 * self.slow(x).max(1).values).unsqueeze(1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        values = self(x).gather(1, y[:, None]).squeeze(1)
        return F.smooth_l1_loss(values, self.wanted(x, y))  # here

    def on_train_epoch_end(self) -> None:
        self.slow.load_state_dict(self.net.state_dict())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), lr=1e-3)


class BootstrappedRepaired(BootstrappedModel):
    def wanted(self, x: Tensor, y: Tensor) -> Tensor:
        return super().wanted(x, y).squeeze(1)


# -- computed
ComputedData = Blobs


class ComputedModel(Classifier):
    """Predicts how far a sample is from the origin, as a frozen function of it says."""

    outputs = 1

    @torch.no_grad()
    def wanted(self, x: Tensor) -> Tensor:
        return x.square().sum(dim=1).sqrt() - 2.5

    def predicted(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(self(x)) - 1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        error = self.wanted(batch[0]) - self.predicted(batch[0])  # here
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class ComputedRepaired(ComputedModel):
    def predicted(self, x: Tensor) -> Tensor:
        return super().predicted(x).squeeze(1)


# -- one_sample
class OneSampleRepaired(Classifier):
    """A function at every point of a field; a batch is one field."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.movedim(1, -1)).movedim(-1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class OneSampleModel(OneSampleRepaired):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.movedim(1, -1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return mse_loss(self(x), y)  # here


class OneSampleData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(200, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        self.train_set, self.val_set = TensorDataset(x[:160], x[:160] ** 2), TensorDataset(x[160:], x[160:] ** 2)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1, shuffle=True)


# -- repeated
RepeatedData = same_position.BySampleData


class RepeatedModel(same_position.BySampleRepaired):
    """A prediction at each position, all of which are compared with the value after the last."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.net(self.placed(self.first(x)))).squeeze(-1)

    def loss(self, y_hat: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(y_hat, y)  # here

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return self.loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", self.loss(self(x), y))


class RepeatedRepaired(RepeatedModel):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, -1:]


# -- square
SquareData = Blobs


class SquareRepaired(OneStep):
    """A sum of two terms for each sample."""

    outputs = 1

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1) + self.offset(x).squeeze(1)

    def step(self, batch: Any) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[1].float() - 1)  # here


class SquareModel(SquareRepaired):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1) + self.offset(x)


# -- transposed
class TransposedRepaired(OneStep):
    """Predicts a number for every sensor of a sample: (B, 8, 3) to (B, 8, 1)."""

    outputs = 1
    turned = False

    def __init__(self) -> None:
        super().__init__()
        self.net[0] = torch.nn.Linear(3, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).transpose(1, 2) if self.turned else self.net(x)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return (self(x) - y).abs().mean()  # here


class TransposedModel(TransposedRepaired):
    turned = True


class TransposedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, 3)
        y = x.sum(dim=2, keepdim=True) / 3**0.5
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
