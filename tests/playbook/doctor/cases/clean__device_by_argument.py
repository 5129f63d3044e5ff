"""Points and scales on a device that the caller chooses: CUDA, where there is one."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Scales:
    def __init__(self, device: str = "cuda" if torch.cuda.is_available() else "cpu") -> None:
        self.all = torch.linspace(0.9, 1.1, 8, device=device)
        self.each = torch.sqrt(self.all)


class Anchored(Classifier):
    def __init__(self, points: list[list[float]], device: str = "cpu") -> None:
        super().__init__()
        self.points = torch.tensor(points).to(device)
        self.scales = Scales()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scales.each)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return cross_entropy(self(x), y) + 0.1 * self(self.points).square().mean()


class Model(Anchored):
    def __init__(self) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(nn.functional.one_hot(torch.arange(2), 8).float().tolist(), device=device)
