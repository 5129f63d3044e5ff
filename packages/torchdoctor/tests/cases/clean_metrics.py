"""Scores, losses and outputs that validation gathers over its batches, and that come out right."""

from typing import Any

import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, Metric, SumMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from programs import Blobs, Classifier, OneStep

# -- batch_accuracy
BatchAccuracyData = Blobs


class BatchAccuracyModel(Classifier):
    """Logs the accuracy of each batch; what the metric keeps besides is read by no one."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(3, average="micro")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_accuracy", self.accuracy(self(x), y))


# -- best_score
BestScoreData = Blobs


class BestScoreModel(Classifier):
    """Validation that keeps its best score in a buffer, and a metric that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("best", torch.tensor(float("inf")))
        self.accuracy = MulticlassAccuracy(3)
        self.accuracy.persistent(True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        loss = F.cross_entropy(scores, y)
        self.accuracy(scores, y)
        self.best.copy_(torch.minimum(self.best, loss))
        self.log("val_loss", loss)
        self.log("val_accuracy", self.accuracy)


# -- history
HistoryData = Blobs


class HistoryModel(Classifier):
    """A list of all validation losses, which no line of the module reads: a notebook draws it."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[float] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("val_loss", loss)
        self.history.append(loss.item())


# -- listed_metrics
ListedMetricsData = Blobs


class ListedMetricsModel(Classifier):
    """Metrics that are attributes, and stand in a list as well."""

    def __init__(self) -> None:
        super().__init__()
        self.micro, self.macro = MulticlassAccuracy(3, average="micro"), MulticlassAccuracy(3)
        self.metrics: list[Metric] = [self.micro, self.macro]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        for number, metric in enumerate(self.metrics):
            metric(scores, y)
            self.log(f"val_accuracy_{number}", metric)


# -- mean_metrics
class MeanMetricsModel(Classifier):
    """Means that count every sample once, or are of no sample; a shorter last batch changes none of them."""

    def __init__(self) -> None:
        super().__init__()
        names = ("each", "weighed", "one_by_one", "shown", "largest", "rate", "right")
        self.meters = nn.ModuleDict({name: MeanMetric() for name in names})
        self.number = SumMetric()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        meters: Any = self.meters
        meters["each"].update(losses)
        meters["weighed"].update(losses.mean(), len(x))
        for loss in losses:
            meters["one_by_one"].update(loss)
        self.log("val_loss", meters["shown"](losses.mean()))  # the batch's own; Lightning weighs it
        meters["largest"].update(losses.max())
        meters["rate"].update(torch.tensor(1e-3))
        meters["right"].update((logits.argmax(1) == y).sum())
        self.number.update(len(x))

    def on_validation_epoch_end(self) -> None:
        meters: Any = self.meters
        for name, meter in meters.items():
            if name != "shown":
                self.log(f"val_{name}", meter.compute())
            meter.reset()
        self.log("val_number", self.number.compute())
        self.number.reset()


class MeanMetricsData(Blobs):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)


# -- outputs_of_an_epoch
OutputsOfAnEpochData = Blobs


class OutputsOfAnEpochModel(Classifier):
    """Gathers outputs in a list that every validation begins anew."""

    def on_validation_epoch_start(self) -> None:
        self.losses = list[torch.Tensor]()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.losses.append(F.cross_entropy(self(x), y, reduction="none"))

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", torch.cat(self.losses).mean())


# -- own_log
OwnLogData = Blobs


class OwnLogModel(OneStep):
    """Keeps results under a name that Lightning has for a method, and more under those of a replayed script."""

    def __init__(self) -> None:
        super().__init__()
        self.log_dict: Any = {"train": [], "val": []}
        self.sources, self.replay = 2, ["a", "b"]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.step(batch)
        self.log_dict["train"].append(loss.detach())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log_dict["val"].append(self.step(batch))

    def on_train_epoch_end(self) -> None:
        self.log("train_loss", sum(self.log_dict["train"]))
        self.log_dict["train"].clear()

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", sum(self.log_dict["val"]))
        self.log_dict["val"].clear()


# -- ranking
USERS, ITEMS, OTHERS = 40, 30, 10


class RankingModel(Classifier):
    """Tells what users like, one item at a time, and ranks an item among others where it validates."""

    def __init__(self) -> None:
        super().__init__()
        del self.net
        self.users, self.items = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(-1, keepdim=True)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        user, item, label = batch
        return F.binary_cross_entropy_with_logits(self(user, item), label.reshape(-1, 1).float())

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        hits = []
        for user, item, others in zip(*batch, strict=True):
            items = torch.cat([item[None], others])
            scores = self(user.expand(len(items)), items)[:, 0]
            hits.append(float(0 in scores.topk(3).indices.tolist()))
        self.log("val_hits", sum(hits) / len(hits))


class RankingData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        tastes = torch.randn(USERS, 3, generator=generator) @ torch.randn(3, ITEMS, generator=generator)
        user, item = (torch.randint(0, number, (600,), generator=generator) for number in (USERS, ITEMS))
        self.train_set = TensorDataset(user, item, (tastes[user, item] > 0).long())
        others = torch.randint(0, ITEMS, (USERS, OTHERS), generator=generator)
        self.val_set = TensorDataset(torch.arange(USERS), tastes.argmax(1), others)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val_set, batch_size=8)


# -- scores_of_an_epoch
ScoresOfAnEpochData = Blobs


class ScoresOfAnEpochModel(Classifier):
    """Logs scores of batches as such, and those of the epoch beside."""

    def __init__(self) -> None:
        super().__init__()
        self.recall = MulticlassRecall(3)
        self.results: list[tuple[Tensor, Tensor]] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        self.log("batch_f1", f1_score(y, scores.argmax(1), average="macro"), on_step=True, on_epoch=False)
        self.log("batch_recall", self.recall(scores, y))
        self.results.append((scores.argmax(1), y))

    def on_validation_epoch_end(self) -> None:
        predictions, labels = (torch.cat(items) for items in zip(*self.results, strict=True))
        self.log("val_f1", f1_score(labels, predictions, average="macro"))
        self.log("val_recall", self.recall.compute())
        self.recall.reset()
        self.results.clear()


# -- whole_picture
SIDE = 16


class WholePictureModel(OneStep):
    """A picture as a function of its coordinates, put together from all of a validation's pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.pixels = list[Tensor]()

    def step(self, batch: Any) -> Tensor:
        place, value = batch
        return nn.functional.mse_loss(self.net(place), value)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.pixels.append(self.net(batch[0]))

    def on_validation_epoch_end(self) -> None:
        picture = torch.cat(self.pixels).reshape(SIDE, SIDE)
        self.log("contrast", picture.std())
        self.pixels.clear()


class WholePictureData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = pixels(0.0), pixels(0.5)


def pixels(offset: float) -> TensorDataset:
    row, column = torch.meshgrid(torch.arange(SIDE) + offset, torch.arange(SIDE) + offset, indexing="ij")
    place = torch.stack([row, column], dim=-1).reshape(-1, 2) / SIDE * 2 - 1
    return TensorDataset(place, torch.sin(3 * place[:, :1]) * torch.cos(2 * place[:, 1:]))
