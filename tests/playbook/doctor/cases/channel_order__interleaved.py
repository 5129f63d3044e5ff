import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
        )


def photos(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy areas of one colour, a class each, of shape (number, 16, 16, 3)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (number,), generator=generator)
    x = torch.randn(number, 16, 16, 3, generator=generator) + 2 * F.one_hot(y, 3)[:, None, None]
    return x / x.std(), y


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (self.made(*photos(200, seed)) for seed in (0, 1))

    def made(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(x.reshape(-1, 3, 16, 16), y)  # here


class RepairedData(Data):
    def made(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(x.permute(0, 3, 1, 2).contiguous(), y)
