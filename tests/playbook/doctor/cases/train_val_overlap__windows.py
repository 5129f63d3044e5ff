import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import Dataset, Subset, random_split

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Forecasts the next value of a series from 24 before it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return mse_loss(self(x), y)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Windows(Dataset):
    def __init__(self, series: Tensor) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series) - 24

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.series[index : index + 24], self.series[index + 24]


class RepairedData(Blobs):
    """A walk back and forth in two dimensions, with windows at every step."""

    def __init__(self) -> None:
        super().__init__()
        steps = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        self.windows = Windows(steps.cumsum(0).sin() + 0.1 * steps)
        self.train_set: Dataset = Subset(self.windows, range(790))
        self.val_set: Dataset = Subset(self.windows, range(790, 976))


class Data(RepairedData):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.train_set, self.val_set = random_split(self.windows, [780, 196], generator)  # here
