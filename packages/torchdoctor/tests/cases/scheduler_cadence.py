import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.3)  # here
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Repaired(Model):
    def configure_optimizers(self) -> Any:
        made = super().configure_optimizers()
        return {"optimizer": made["optimizer"], "lr_scheduler": made["lr_scheduler"]["scheduler"]}


# -- beside
BesideData = Blobs


class BesideModel(Classifier):
    """Warm-up and decay over the updates of eight epochs."""

    updates = 160

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        schedules = [
            torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=20),
            torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=self.updates - 20),
        ]
        warm = torch.optim.lr_scheduler.SequentialLR(optimizer, schedules, milestones=[20])
        return [
            {"optimizer": optimizer, "interval": "step", "lr_scheduler": {"scheduler": warm, "name": "rate"}}
        ]  # here


class BesideRepaired(BesideModel):
    def configure_optimizers(self) -> Any:
        [made] = super().configure_optimizers()
        return [{"optimizer": made["optimizer"], "lr_scheduler": made["lr_scheduler"] | {"interval": "step"}}]


# -- cosine
CosineData = Blobs


class CosineRepaired(Classifier):
    epochs = 30
    interval = "epoch"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.epochs)  # here
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class CosineModel(CosineRepaired):
    interval = "step"


# -- least_rate
LeastRateData = Blobs


class LeastRateModel(Classifier):
    """The lowest rate is a hundred times the rate, in place of a hundredth."""

    share = 100

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50, eta_min=self.share * 1e-3)  # here
        return [optimizer], [schedule]


class LeastRateRepaired(LeastRateModel):
    share = 0.01


# -- never
NeverData = Blobs


class NeverModel(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)  # here
        return optimizer


class NeverRepaired(NeverModel):
    def on_train_epoch_end(self) -> None:
        self.schedule.step()


# -- of_another
OfAnotherData = Blobs


class OfAnotherModel(Classifier):
    """Two players, of which one has both schedules."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
        self.judge = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.1), nn.Linear(32, 1))
        del self.net

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        of_maker, of_judge = self.optimizers()  # type: ignore[attr-defined]  # a list of two
        made = self.maker(torch.randn_like(x))
        self._go(of_maker, (1 - self.judge(made)).square().mean())
        self._go(of_judge, (1 - self.judge(x)).square().mean() + self.judge(made.detach()).square().mean())

    def _go(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_real", self.judge(batch[0]).mean())

    def on_train_epoch_end(self) -> None:
        for schedule in self.lr_schedulers():  # type: ignore[union-attr]  # a list of two
            schedule.step()  # type: ignore[call-arg]

    def second(self, of_maker: Any, of_judge: Any) -> Any:
        return of_maker

    def configure_optimizers(self) -> Any:
        of_maker, of_judge = (torch.optim.AdamW(net.parameters(), lr=2e-4) for net in (self.maker, self.judge))
        schedules = [
            StepLR(of_maker, 1, 0.99),
            StepLR(self.second(of_maker, of_judge), 1, 0.99),  # here
        ]
        return [of_maker, of_judge], schedules


class OfAnotherRepaired(OfAnotherModel):
    def second(self, of_maker: Any, of_judge: Any) -> Any:
        return of_judge


# -- rate
RateData = Blobs
RATE, EPOCHS = 0.03, 20


def cosine(epoch: int) -> float:
    return 0.5 * RATE * (1 + math.cos(math.pi * epoch / EPOCHS))


class RateModel(Classifier):
    """Falls along a cosine, by a function that returns the rate itself."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)
        return [optimizer], [LambdaLR(optimizer, cosine)]  # here


class RateRepaired(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: cosine(epoch) / RATE)]


# -- steps
StepsData = Blobs


@dataclass
class Plan:
    """Of a training, whose length its Trainer does not know yet."""

    epochs: int = 20
    batches: int = 20

    @property
    def total_steps(self) -> int:
        return self.epochs * self.batches

    def cosine(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.total_steps)  # here


class StepsModel(Classifier):
    interval = "epoch"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": Plan().cosine(optimizer), "interval": self.interval}]


class StepsRepaired(StepsModel):
    interval = "step"


# -- unreturned
UnreturnedData = Blobs


class UnreturnedModel(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)  # noqa: F841  # here
        # return the scheduler as well, if it is wanted
        return optimizer


class UnreturnedRepaired(UnreturnedModel):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)]


# -- whole_training
WholeTrainingData = Blobs


class WholeTrainingRepaired(Classifier):
    """A straight line to zero at the last update."""

    interval = "step"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        updates = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / updates))  # here
        return [optimizer], [{"scheduler": schedule, "interval": self.interval}]


class WholeTrainingModel(WholeTrainingRepaired):
    interval = "epoch"


# -- zero
ZeroData = Blobs


class ZeroModel(Classifier):
    """The rate of the first epoch is zero."""

    first = 0

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(  # here
            optimizer, lambda epoch: min(1.0, (epoch + self.first) / 10)
        )
        return [optimizer], [schedule]


class ZeroRepaired(ZeroModel):
    first = 1


# -- by_hand
ByHandData = Blobs


class ByHandModel(Classifier):
    """Manual optimization, with a decay for epochs that is stepped with each batch."""

    gamma = 0.7

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        optimizer.zero_grad()  # type: ignore[union-attr]  # one of each
        self.manual_backward(nn.functional.cross_entropy(self(x), y))
        optimizer.step()  # type: ignore[union-attr]
        schedule.step()  # type: ignore[union-attr, call-arg]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=self.gamma)]  # here


class ByHandRepaired(ByHandModel):
    gamma = 0.99
