import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.permute(0, 3, 1, 2).float() / 127.5 - 1)


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x = torch.randint(0, 256, (300, 12, 12, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        y = torch.randint(0, 3, (300,), generator=torch.Generator().manual_seed(1))
        x[torch.arange(300), :, :, y] //= 2
        self.train_set, self.val_set = TensorDataset(x[:240], y[:240]), TensorDataset(x[240:], y[240:])
