from typing import Any

from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        self.net = nn.Linear(8, 3)  # here


class Repaired(Classifier):
    pass


# -- mixin
MixinData = Blobs


class Named:
    def __init__(self, **options: Any) -> None:  # here
        self.options = options


class Scale(Named, nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.options["factor"]


class MixinModel(Classifier):
    scale: type[Named] = Scale

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(self.scale(factor=0.5), nn.Linear(8, 3))  # type: ignore[arg-type]


class PassedOn(Named):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        nn.Module.__init__(self)  # type: ignore[arg-type]


class RepairedScale(PassedOn, nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0.5


class MixinRepaired(MixinModel):
    scale = RepairedScale
