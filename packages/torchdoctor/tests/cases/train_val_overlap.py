from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset, random_split

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        everything = self.train_set
        self.train_set, _ = random_split(everything, [320, 80])
        _, self.val_set = random_split(everything, [320, 80])  # here


class RepairedData(Blobs):
    pass


# -- augmented
class AugmentedModel(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, x: Tensor, y: Tensor, noise: float) -> None:
        self.x, self.y, self.noise = x, y, noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i] + self.noise * torch.randn(8), self.y[i]


class AugmentedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = Rows(x, y, noise=0.1)
        self.val_set = Rows(x[300:], y[300:], noise=0.0)  # here


class AugmentedRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set, self.val_set = Rows(x[:300], y[:300], noise=0.1), Rows(x[300:], y[300:], noise=0.0)


# -- oversampled
OversampledModel = Classifier


class OversampledData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        generator = torch.Generator().manual_seed(2)
        x, y = self.enlarged(x, y, generator)
        order = torch.randperm(len(x), generator=generator)
        parts = {"train": order[100:], "val": order[:100]}
        scale = x[parts["train"]].std()

        whole = TensorDataset(x / scale, y)

        self.train_set, self.val_set = (Subset(whole, part.tolist()) for part in parts.values())

    def enlarged(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(x), (300,), generator=generator)
        return torch.cat([x, x[chosen]]), torch.cat([y, y[chosen]])  # here


class OversampledRepairedData(OversampledData):
    def enlarged(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, y


# -- same
class SameModel(Classifier):
    pass


class SameData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=10, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class SameRepairedData(SameData):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


# -- samplers
SamplersModel = Classifier


class SamplersData(Blobs):
    last = 160

    def __init__(self) -> None:
        super().__init__()
        self.order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tolist()

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=SubsetRandomSampler(self.order[80:]))

    def val_dataloader(self) -> DataLoader:
        part = SubsetRandomSampler(self.order[: self.last])
        return DataLoader(self.train_set, batch_size=20, sampler=part)  # here


class SamplersRepairedData(SamplersData):
    last = 80


# -- windows
class WindowsModel(Classifier):
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


class WindowsRepairedData(Blobs):
    """A walk back and forth in two dimensions, with windows at every step."""

    def __init__(self) -> None:
        super().__init__()
        steps = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        self.windows = Windows(steps.cumsum(0).sin() + 0.1 * steps)
        self.train_set: Dataset = Subset(self.windows, range(790))
        self.val_set: Dataset = Subset(self.windows, range(790, 976))


class WindowsData(WindowsRepairedData):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.train_set, self.val_set = random_split(self.windows, [780, 196], generator)  # here
