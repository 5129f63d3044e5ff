import math
from typing import Any

from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class EarlyStopping:
    """Remembers the weights of the lowest loss, which falls in each epoch of a short training."""

    def __init__(self) -> None:
        self.lowest = math.inf
        self.weights: dict[str, Any] = {}

    def __call__(self, loss: float, net: nn.Module) -> None:
        if loss < self.lowest:
            self.lowest = loss
            self.weights = dict(net.state_dict())  # here

    def restore(self, net: nn.Module) -> None:
        net.load_state_dict(self.weights)


class CopyingStopping(EarlyStopping):
    def __call__(self, loss: float, net: nn.Module) -> None:
        if loss < self.lowest:
            self.lowest = loss
            self.weights = {name: weight.clone() for name, weight in net.state_dict().items()}


class Model(OneStep):
    """Asks an object of its own whether the loss still falls."""

    stopping_kind = EarlyStopping

    def __init__(self) -> None:
        super().__init__()
        self.stopping = self.stopping_kind()
        self.losses: list[Tensor] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.losses.append(self.step(batch))

    def on_validation_epoch_end(self) -> None:
        self.stopping(sum(self.losses).item() / len(self.losses), self.net)
        self.losses.clear()

    def on_train_end(self) -> None:
        self.stopping.restore(self.net)


class Repaired(Model):
    stopping_kind = CopyingStopping
