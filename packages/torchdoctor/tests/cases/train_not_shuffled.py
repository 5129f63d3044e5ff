from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler, TensorDataset

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Sorted(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        order = y.argsort()
        self.train_set = TensorDataset(x[order], y[order])


class Data(Sorted):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class RepairedData(Sorted):
    pass


# -- batch_sampler
class BatchSamplerModel(Classifier):
    pass


class BatchSamplerData(Blobs):
    sampler: Any = SequentialSampler

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        order = y.argsort()
        self.train_set = TensorDataset(x[order], y[order])

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(self.sampler(self.train_set), batch_size=20, drop_last=False)
        return DataLoader(self.train_set, batch_sampler=batches)  # here


class BatchSamplerRepairedData(BatchSamplerData):
    sampler = RandomSampler


# -- helper
class HelperModel(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        logits = self(batch["x"]).log_softmax(dim=1)
        return -(logits * F.one_hot(batch["y"], 3)).sum(dim=1).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Folder(Dataset):
    def __init__(self, per_class: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.files = [(torch.randn(8, generator=generator) + k, k) for k in range(3) for _ in range(per_class)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        x, y = self.files[i]
        return {"x": x, "y": y}


class Loaders(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Folder(100, 0), Folder(20, 1)

    def loader(self, dataset: Dataset, mixed: bool) -> DataLoader:
        return DataLoader(
            dataset,
            batch_size=16,
            num_workers=0,
            pin_memory=False,
            shuffle=mixed,
        )

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set, mixed=False)


class HelperData(Loaders):
    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, mixed=False)  # here


class HelperRepairedData(Loaders):
    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, mixed=True)


# -- neighbours
NeighboursModel = Model


class Batches(Sampler[list[int]]):
    def __init__(self, length: int, stride: int) -> None:
        self.length, self.stride = length, stride

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(20):
            if self.stride == 1:
                yield list(range(20 * start, 20 * start + 20))
            else:
                yield list(range(start, self.length, self.stride))

    def __len__(self) -> int:
        return self.length // 20


class NeighboursData(Sorted):
    stride = 1

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_sampler=Batches(400, self.stride))  # here


class NeighboursRepairedData(NeighboursData):
    stride = 20


# -- round
RoundModel = Model


class Round(Sampler[int]):
    """Begins anywhere, and comes once round."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        start = int(torch.randint(self.length, ()))
        return ((start + step) % self.length for step in range(self.length))

    def __len__(self) -> int:
        return self.length


class Anyhow(Round):
    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())


class RoundData(Sorted):
    kind: type[Round] = Round

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.kind(400))  # here


class RoundRepairedData(RoundData):
    kind = Anyhow


# -- series
class SeriesModel(Classifier):
    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Windows(Dataset):
    """Eight steps of a slow series, and the next one."""

    def __init__(self, length: int) -> None:
        times = torch.arange(length + 8) / 40
        self.series = times.sin() + 0.5 * (0.31 * times).cos() + 0.05 * torch.randn(length + 8)

    def __len__(self) -> int:
        return len(self.series) - 8

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.series[number : number + 8], self.series[number + 8 :][:1]


class SeriesData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Windows(800), Windows(200)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class SeriesRepairedData(SeriesData):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)
