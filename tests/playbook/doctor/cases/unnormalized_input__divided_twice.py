import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        pixels = torch.randint(0, 256, (500, 1, 12, 12), generator=generator)
        pixels[:, :, :4] = (pixels[:, :, :4] + 100 * y[:, None, None, None]).clamp(max=255)
        images = self.scaled(pixels / 255)
        self.train_set, self.val_set = TensorDataset(images[:400], y[:400]), TensorDataset(images[400:], y[400:])

    def scaled(self, images: torch.Tensor) -> torch.Tensor:
        return images / 255  # here


class RepairedData(Data):
    def scaled(self, images: torch.Tensor) -> torch.Tensor:
        return images
