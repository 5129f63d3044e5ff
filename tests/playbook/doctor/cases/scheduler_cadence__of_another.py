from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
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


class Repaired(Model):
    def second(self, of_maker: Any, of_judge: Any) -> Any:
        return of_judge
