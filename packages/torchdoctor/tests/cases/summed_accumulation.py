from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from programs import Blobs, OneStep

Data = Blobs
TOGETHER = 4


class Repaired(OneStep):
    """Steps after four batches."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.step(batch) / TOGETHER)
        if (batch_idx + 1) % TOGETHER == 0:
            optimizer.step()
            optimizer.zero_grad()


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.step(batch))  # here
        if (batch_idx + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()


# -- summed
SummedData = Data


class SummedModel(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.step(batch))  # here
        if batch_idx % 5 == 4:
            optimizer.step()
            optimizer.zero_grad()


class SummedRepaired(SummedModel):
    """The error is a sum over samples, in one batch or in five."""

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return cross_entropy(self(x), y, reduction="sum")
