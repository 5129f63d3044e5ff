import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Samples are padded to one length when the data are made, and no batch is ever shorter: this is advice."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).mean(1)  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        real = (x != 0).any(-1, keepdim=True)
        return (self.net(x) * real).sum(1) / real.sum(1)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 24, 8, generator=generator)
        x[:, :, :3] += nn.functional.one_hot(y, 3)[:, None]
        lengths = torch.randint(8, 25, (500, 1), generator=generator)
        x *= (torch.arange(24) < lengths)[..., None]
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
