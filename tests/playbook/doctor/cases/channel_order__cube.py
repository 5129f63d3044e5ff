import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(10, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
        )


class RepairedData(Blobs):
    """Patches of 10 by 10 pixels in 10 bands, whose spectrum tells the class."""

    def spectra(self, x: Tensor) -> Tensor:
        return x

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (400,), generator=generator)
        bands = torch.randn(3, 10, generator=generator)[y]
        x = bands[:, :, None, None] + torch.randn(400, 10, 10, 10, generator=generator)
        x = self.spectra(x / x.std())  # here
        self.train_set, self.val_set = TensorDataset(x[:320], y[:320]), TensorDataset(x[320:], y[320:])


class Data(RepairedData):
    def spectra(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous()
