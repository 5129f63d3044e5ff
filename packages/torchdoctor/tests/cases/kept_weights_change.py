import math
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from programs import Blobs, OneStep

Data = Blobs


class Model(OneStep):
    """Keeps its best weights in validation and loads them in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.best: dict[str, Any] = {}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.losses.append(self.step(batch).item())

    def on_validation_epoch_end(self) -> None:
        if self.losses[-1] <= min(self.losses) or not self.best:
            self.best = self.net.state_dict()  # here

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.best)


class Repaired(Model):
    def on_validation_epoch_end(self) -> None:
        if self.losses[-1] <= min(self.losses) or not self.best:
            self.best = deepcopy(self.net.state_dict())


# -- stopping
StoppingData = Blobs


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


class StoppingModel(OneStep):
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


class StoppingRepaired(StoppingModel):
    stopping_kind = CopyingStopping


# -- target
TargetData = Blobs


class TargetRepaired(OneStep):
    """Is drawn to a slow copy of itself, which takes its weights over now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.target = self.copied(self.net)

    def copied(self, net: nn.Module) -> nn.Module:
        return deepcopy(net).requires_grad_(False)

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        return super().step(batch) + (self.net(x) - self.target(x).detach()).square().mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2 == 0:
            self.target.load_state_dict(self.net.state_dict())


class TargetModel(TargetRepaired):
    def copied(self, net: nn.Module) -> nn.Module:
        return net

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2 == 0:
            self.target.load_state_dict(self.net.state_dict())  # here
