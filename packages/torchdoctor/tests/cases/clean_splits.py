"""Training and validation data of one origin, or with equal rows, that are no leak."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, TensorDataset

from programs import Blobs, Classifier

# -- a_sample_twice
ASampleTwiceModel = Classifier


class ASampleTwiceData(Blobs):
    """Public data in which one test sample is also a training sample; the splits are the same at every stage."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(40, 8, generator=generator), torch.randint(0, 3, (40,), generator=generator)
        x[0], y[0] = self.train_set[0]
        self.test_set = TensorDataset(x, y)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)


# -- oversampled
class OversampledModel(Classifier):
    pass


class OversampledData(Blobs):
    """Few possible rows: equal samples on both sides by chance; and a class that is repeated in training."""

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 3, (600, 8), generator=generator).float() - 1
        y = (x[:, :3].sum(dim=1) > 0).long() + (x[:, 3] > 0).long()
        rare = (y == 2).nonzero()[:, 0]
        rare = rare[rare < 480].repeat(4)
        self.train_set = TensorDataset(torch.cat([x[:480], x[rare]]), torch.cat([y[:480], y[rare]]))
        self.val_set = TensorDataset(x[480:], y[480:])


# -- ratings_of_the_same_users
ITEMS, UNKNOWN = 12, 0.6180339887


class RatingsOfTheSameUsersModel(Classifier):
    """Predicts the ratings that are not known of those that are."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(ITEMS, 16), nn.Sigmoid(), nn.Linear(16, ITEMS))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        known, ratings, mask = batch
        return (mask * (self(known) - ratings)).square().sum() / mask.sum()

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class RatingsOfTheSameUsersData(Blobs):
    """The same users with other ratings held out: some users have given none of those that are known."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        tastes = torch.rand(300, 4, generator=generator)
        ratings = tastes @ torch.rand(4, ITEMS, generator=generator)
        parts = torch.randint(0, 3, (300, ITEMS), generator=generator)
        parts[::9][parts[::9] == 0] = 1  # no known ratings
        self.sets = [self.part(ratings, parts == 0, parts == held) for held in (1, 2)]

    def part(self, ratings: Tensor, is_known: Tensor, is_held: Tensor) -> TensorDataset:
        known = torch.where(is_known, ratings, UNKNOWN + torch.arange(ITEMS) / 7)
        return TensorDataset(known, torch.where(is_held, ratings, 0.0), is_held.float())

    def train_dataloader(self) -> Any:
        return DataLoader(self.sets[0], batch_size=20, shuffle=True)

    def val_dataloader(self) -> Any:
        rows = range(0, 300, 3)
        return DataLoader(torch.utils.data.Subset(self.sets[1], rows), batch_size=20)


# -- split_by_samplers
SplitBySamplersModel = Classifier


class SplitBySamplersData(Blobs):
    """One data set, of which two samplers take parts."""

    def __init__(self) -> None:
        super().__init__()
        order = torch.randperm(400, generator=torch.Generator().manual_seed(0)).tolist()
        self.train_sampler, self.val_sampler = SubsetRandomSampler(order[80:]), SubsetRandomSampler(order[:80])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.train_sampler)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.val_sampler)


# -- switched_data
SwitchedDataModel = Classifier


class Parts(Dataset):
    """One data set for training and validation, which a method switches."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator)
        x[:, :3] += 2.0 * F.one_hot(y, 3)
        self.samples = list(zip(x, y, strict=True))
        self.mode = "train"

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def __len__(self) -> int:
        return 400 if self.mode == "train" else 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index + (0 if self.mode == "train" else 400)]


class SwitchedDataData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts()

    def train_dataloader(self) -> DataLoader:
        self.parts.set_mode("train")
        return DataLoader(self.parts, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.parts, batch_size=20)


# -- windows
class WindowsModel(Classifier):
    """A forecast from windows in the order of time."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Windows(Dataset):
    def __init__(self, series: Tensor) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series) - 11

    def __getitem__(self, i: int) -> Any:
        return self.series[i : i + 8], self.series[i + 8 : i + 11]


class WindowsData(Blobs):
    def setup(self, stage: str) -> None:
        series = torch.randn(600, generator=torch.Generator().manual_seed(0)).cumsum(dim=0)
        series = (series - series[:480].mean()) / series[:480].std()
        self.train_set, self.val_set = Windows(series[:480]), Windows(series[470:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)
