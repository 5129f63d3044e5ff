import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, OneStep


class Flow(nn.Module):
    """Fills the steps between pixels with uniform noise, in evaluation as well, as its likelihood needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x * 255 + torch.rand_like(x)) / 256)


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = Flow()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for dataset in (self.train_set, self.val_set):
            x, y = dataset.tensors  # type: ignore[attr-defined]
            dataset.tensors = (((x + 5) * 25).round().clamp(0, 255) / 255, y)  # type: ignore[attr-defined]
