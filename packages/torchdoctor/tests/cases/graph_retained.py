import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import CatMetric

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.average = torch.zeros(())

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.average = 0.9 * self.average + 0.1 * loss  # here
        return loss


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = Classifier.training_step(self, batch, batch_idx)
        self.average = 0.9 * self.average.to(loss) + 0.1 * loss.detach()
        return loss


# -- metric
MetricData = Blobs


class MetricRepaired(Classifier):
    """A metric that gathers what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = CatMetric()

    def gather(self, loss: Tensor) -> None:
        self.seen.update(loss.detach())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.gather(loss)
        return loss


class MetricModel(MetricRepaired):
    def gather(self, loss: Tensor) -> None:
        self.seen.value.append(loss)  # here


# -- object
ObjectData = Blobs


@dataclass
class Smooth:
    """Running averages by name."""

    averages: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, value: Tensor) -> Tensor:
        former = self.averages.get(name, value)
        self.averages[name] = 0.9 * former + 0.1 * value  # here
        return self.averages[name]


class ObjectRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.smooth = Smooth()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss: Tensor = super().training_step(batch, batch_idx)
        self.log("smooth", self.smooth.take("loss", self.noted(loss)))
        return loss

    def noted(self, loss: Tensor) -> Tensor:
        return loss.detach()


class ObjectModel(ObjectRepaired):
    def noted(self, loss: Tensor) -> Tensor:
        return loss


# -- proxy
ProxyData = Blobs
ENDED = weakref.proxy(nn.Identity())  # which fails whoever asks it for its class


class ProxyRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.losses: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss: Tensor = super().training_step(batch, batch_idx)
        self.losses.append(self.noted(loss))  # here
        return loss

    def noted(self, loss: Tensor) -> Any:
        return loss.detach()


class ProxyModel(ProxyRepaired):
    def noted(self, loss: Tensor) -> Any:
        return loss


# -- results
ResultsData = Blobs


class ResultsRepaired(OneStep):
    """Gathers what the steps of an epoch give, and forgets it at the epoch's end."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, Tensor]] = []

    def gather(self, loss: Tensor) -> None:
        self.results.append({"loss": loss.detach()})

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.step(batch)
        self.gather(loss)
        return loss

    def on_train_epoch_end(self) -> None:
        self.results.clear()


class ResultsModel(ResultsRepaired):
    def gather(self, loss: Tensor) -> None:
        self.results.append({"loss": loss})  # here
