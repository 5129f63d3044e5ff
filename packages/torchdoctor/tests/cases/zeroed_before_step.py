from typing import Any

from programs import Blobs, OneStep

Data = Blobs


class Repaired(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.step(batch))
        optimizer.step()


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.step(batch))
        optimizer.zero_grad()  # here
        optimizer.step()


# -- module
ModuleData = Blobs
ModuleRepaired = Repaired


class ModuleModel(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.step(batch))
        self.net.zero_grad()  # here
        optimizer.step()
