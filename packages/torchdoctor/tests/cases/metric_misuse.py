from collections import defaultdict
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score, MulticlassRecall
from torchmetrics.functional import f1_score, r2_score

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.hits = self.seen = 0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.hits += (self(x).argmax(1) == y).sum()  # here
        self.seen += len(y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.hits / self.seen)


class Repaired(Model):
    def on_validation_epoch_start(self) -> None:
        self.hits = self.seen = 0


# -- batch_scores
class BatchScoresData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=5)


class BatchScoresModel(Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        score = f1_score(self(x), y, task="multiclass", num_classes=3, average="macro")
        self.log("val_f1", score)  # here


class BatchScoresRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.f1: Metric = MulticlassF1Score(3)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.f1(self(x), y)
        self.log("val_f1", self.f1)


# -- batch_values
class BatchValuesData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=5)


class BatchValuesModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scores = MetricCollection([MulticlassAccuracy(3, average="micro"), MulticlassRecall(3)])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log_dict(self.scores(self(x), y))  # here


class BatchValuesRepaired(BatchValuesModel):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.scores.update(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.scores.compute())
        self.scores.reset()


# -- by_loader
class ByLoaderData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=30)


class ByLoaderModel(Classifier):
    """Losses are gathered for each validation loader."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: dict[int, list[Tensor]] = defaultdict(list)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        self.losses[dataloader_idx].append(F.cross_entropy(self(x), y))

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", torch.stack([loss for losses in self.losses.values() for loss in losses]).mean())  # here
        self.losses.clear()


class ByLoaderRepaired(ByLoaderModel):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        self.losses[dataloader_idx] += F.cross_entropy(self(x), y, reduction="none").unbind()


# -- epoch_accuracy
EpochAccuracyData = Blobs


class EpochAccuracyModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(3, average="micro")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.accuracy(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.accuracy.compute())  # here


class EpochAccuracyRepaired(EpochAccuracyModel):
    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.accuracy.reset()


# -- mean_metric
class MeanMetricModel(Classifier):
    """Shows the calibration error of a forecast beside its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.brier = MeanMetric()

    def error(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x).softmax(dim=1) - F.one_hot(y, 3)).square().sum(dim=1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.brier(self.error(x, y).mean())  # here
        self.log("val_brier", self.brier)


class MeanMetricRepaired(MeanMetricModel):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.brier(self.error(x, y).mean(), weight=len(x))
        self.log("val_brier", self.brier)


class MeanMetricData(Blobs):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)


# -- means
class MeansModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.accuracies: list[Tensor] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.accuracies.append((self(x).argmax(1) == y).float().mean())

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", torch.stack(self.accuracies).mean())  # here
        self.accuracies.clear()


class MeansData(Blobs):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)


class MeansRepairedData(MeansData):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=25)


# -- meter
MeterData = Blobs


class Meter(nn.Module):
    """The share of right answers, in buffers."""

    right: Tensor
    number: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("right", torch.zeros(()))
        self.register_buffer("number", torch.zeros(()))

    def update(self, logits: Tensor, y: Tensor) -> None:
        self.right += (logits.argmax(dim=1) == y).sum()
        self.number += len(y)

    def compute(self) -> Tensor:
        return self.right / self.number

    def reset(self) -> None:
        self.right.zero_()
        self.number.zero_()


class MeterModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.meter.update(self(x), y)  # here

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.meter.compute())


class MeterRepaired(MeterModel):
    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.meter.reset()


# -- mixin
MixinData = MeansData
MixinRepairedData = MeansRepairedData


class Gathering:
    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, list[Tensor]] = {}

    def keep(self, name: str, value: Tensor) -> None:
        self._kept.setdefault(name, []).append(value)

    def on_validation_epoch_end(self) -> None:
        for name, values in self._kept.items():
            self.log(name, torch.stack(values).mean())  # type: ignore[attr-defined]  # here
        self._kept.clear()


class MixinModel(Gathering, Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.keep("accuracy", (self(x).argmax(1) == y).float().mean())


# -- r2
class R2Model(pl.LightningModule):
    """Logs R² of each batch; a batch of the validation, in the order of its values, has hardly any variance."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        y_hat = self(x)
        self.log("val_loss", F.mse_loss(y_hat, y))
        self.score(y_hat, y)

    def score(self, y_hat: Tensor, y: Tensor) -> None:
        self.log("val_r2", r2_score(y_hat, y))  # here

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class R2Repaired(R2Model):
    def score(self, y_hat: Tensor, y: Tensor) -> None:
        self.log("val_mae", F.l1_loss(y_hat, y))


class R2Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
        y = x.sum(1)
        order = y[500:].argsort()
        self.train, self.val = TensorDataset(x[:500], y[:500]), TensorDataset(x[500:][order], y[500:][order])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)


# -- root
class Errors:
    def __init__(self, root_of_each: bool) -> None:
        self.root_of_each = root_of_each
        self.kept: list[Tensor] = []

    def add(self, squares: Tensor) -> None:
        self.kept.append(squares.mean().sqrt()[None] if self.root_of_each else squares)

    def result(self) -> Tensor:
        kept = torch.cat(self.kept)
        self.kept.clear()
        return kept.mean() if self.root_of_each else kept.mean().sqrt()


class RootModel(OneStep):
    outputs = 1
    root_of_each = True

    def __init__(self) -> None:
        super().__init__()
        self.errors = Errors(self.root_of_each)

    def step(self, batch: Any) -> Tensor:
        return F.mse_loss(self(batch[0])[:, 0], batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.errors.add((self(batch[0])[:, 0] - batch[1]).square())

    def on_validation_epoch_end(self) -> None:
        self.log("val_rmse", self.errors.result())  # here


class RootRepaired(RootModel):
    root_of_each = False


class RootData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8)
        y = x[:, :3].sum(dim=1) / 3**0.5
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=30)


# -- shared
class SharedData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32)


class SharedRepaired(Classifier):
    """Counts training and validation apart."""

    def __init__(self) -> None:
        super().__init__()
        self.train_accuracy = MulticlassAccuracy(3, average="micro")
        self.accuracy = self.val_accuracy()

    def val_accuracy(self) -> Any:
        return MulticlassAccuracy(3, average="micro")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        self.train_accuracy.update(self(x), y)
        return F.cross_entropy(self(x), y)

    def on_train_epoch_end(self) -> None:
        self.log("train_accuracy", self.train_accuracy.compute())  # here
        self.train_accuracy.reset()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.accuracy.update(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.accuracy.compute())
        self.accuracy.reset()


class SharedModel(SharedRepaired):
    def val_accuracy(self) -> Any:
        return self.train_accuracy
