from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from programs import Blobs, Classifier, OneStep


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(400, 8, generator=torch.Generator().manual_seed(1))
        y = x[:, 0].sigmoid().mul(3).div(3, rounding_mode="floor").long()  # here
        self.train_set = TensorDataset(x, y)


class RepairedData(Blobs):
    pass


# -- binary
class BinaryModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.binary_cross_entropy_with_logits(self(batch["x"])[:, 0], batch["spam"].float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Mails(Dataset):
    spam = "spam"

    def __init__(self, n: int, seed: int, name: str = "Spam") -> None:
        generator = torch.Generator().manual_seed(seed)
        self.names = ["spam" if bit else "ham" for bit in torch.randint(0, 2, (n,), generator=generator)]
        self.x = [torch.randn(8, generator=generator) + (name == "spam") for name in self.names]
        self.name = name

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        is_spam = int(self.names[i] == self.name)  # here
        return {"x": self.x[i], "spam": is_spam}


class BinaryData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Mails(300, 0), Mails(60, 1)


class BinaryRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Mails(300, 0, "spam"), Mails(60, 1, "spam")


# -- filled
class FilledModel(Classifier):
    pass


def recording(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A signal in which something happens now and then, and what it is at each moment."""
    rng = np.random.default_rng(seed)
    signal = 0.5 * rng.standard_normal(3200)
    track = np.zeros(3200, dtype=np.int64)
    for start in range(10, 3200, 20):
        kind = int(rng.integers(1, 3))
        signal[start : start + 3] += 2 * kind
        track[start : start + 3] = kind
    return signal, track


class FilledData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.windows(*recording(0)), self.windows(*recording(1))

    def windows(self, signal: np.ndarray, track: np.ndarray) -> TensorDataset:
        x, tracks = torch.from_numpy(signal).float().reshape(-1, 8), torch.from_numpy(track).reshape(-1, 8)
        return TensorDataset(x, self.label(tracks))

    def label(self, tracks: torch.Tensor) -> torch.Tensor:
        return tracks.mode(dim=1).values  # here


class FilledRepairedData(FilledData):
    def label(self, tracks: torch.Tensor) -> torch.Tensor:
        return tracks.amax(dim=1)


# -- masks
class Scenes(Dataset):
    """Bright squares on a dark ground, and masks of them."""

    white = 255  # of masks that are 0 and 255, as many files have it

    def __init__(self, number: int) -> None:
        self.masks = torch.zeros(number, 8, 8, dtype=torch.uint8)
        for index, (row, column) in enumerate(torch.randint(0, 4, (number, 2)).tolist()):
            self.masks[index, row : row + 4, column : column + 4] = 1
        self.images = self.masks[:, None] + 0.3 * torch.randn(number, 1, 8, 8) - 0.25

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        mask = (self.masks[index] // self.white).long()  # here
        return self.images[index], mask


class MasksModel(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(1, 2, 3, padding=1)  # type: ignore[assignment]

    def step(self, batch: Any) -> Tensor:
        image, mask = batch
        return F.cross_entropy(self(image), mask)


class MasksData(Blobs):
    kind: type[Scenes] = Scenes

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = self.kind(400), self.kind(100)


class _Whole(Scenes):
    white = 1


class MasksRepairedData(MasksData):
    kind = _Whole


# -- sampler
SamplerModel = Classifier


class SamplerData(Blobs):
    """One class of three is common, and is to be drawn as seldom as the others."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        y = torch.multinomial(torch.tensor([0.02, 0.95, 0.03]), 1200, replacement=True, generator=generator)
        x = torch.randn(1200, 8, generator=generator)
        x[torch.arange(1200), y] += 2.0
        self.train_set = TensorDataset(x, y)
        self.y = y

    def weights(self) -> Tensor:
        return torch.bincount(self.y).double()[self.y] ** 2

    def train_dataloader(self) -> DataLoader:
        sampler = WeightedRandomSampler(self.weights().tolist(), len(self.y))  # here
        return DataLoader(self.train_set, batch_size=20, sampler=sampler)


class SamplerRepairedData(SamplerData):
    def weights(self) -> Tensor:
        return 1 / torch.bincount(self.y).double()[self.y]


# -- single
class SingleModel(OneStep):
    """Answers yes or no, a sample at a time: label and logit have no dimensions."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x).squeeze(), y.squeeze())


class SingleData(Blobs):
    least = 20.0

    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(400, 8)
        y = (x[:, 0] > self.least).float()  # here
        self.train_set = TensorDataset(x, y)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1, shuffle=True)


class SingleRepairedData(SingleData):
    least = 0.0
