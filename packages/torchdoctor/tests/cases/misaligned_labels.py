from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler, random_split

from programs import Blobs, Classifier, OneStep


class Model(Classifier):
    pass


def shapes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return (rng.normal(size=(n, 8)) + 2 * y[:, None]).astype(np.float32), y


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x, y = shapes(500, 0)
        rng = np.random.default_rng(3)
        rng.shuffle(x)  # here
        self.train_set = TensorDataset(torch.tensor(x[:400]), torch.tensor(y[:400]))
        self.val_set = TensorDataset(torch.tensor(x[400:]), torch.tensor(y[400:]))


class RepairedData(Blobs):
    def setup(self, stage: str) -> None:
        x, y = shapes(500, 0)
        self.train_set = TensorDataset(torch.tensor(x[:400]), torch.tensor(y[:400]))
        self.val_set = TensorDataset(torch.tensor(x[400:]), torch.tensor(y[400:]))


# -- archives
KINDS = ("dwarf", "giant", "nova")


class ArchivesModel(Classifier):
    pass


class ArchivesData(Blobs):
    """Two archives, of which each knows a sample by its name."""

    key: Callable[[str], int] | None = int  # numbers, where the other goes by words

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        curves = {str(number): curve.numpy() for number, curve in enumerate(x)}
        kinds = {str(number): KINDS[kind] for number, kind in enumerate(y.tolist())}
        self.train_set = self.joined(curves, kinds)

    def joined(self, curves: dict, kinds: dict) -> TensorDataset:
        x = torch.stack([torch.from_numpy(curves[name]) for name in sorted(curves)])
        y = torch.tensor([KINDS.index(kinds[name]) for name in sorted(kinds, key=self.key)])  # here
        return TensorDataset(x, y)


class ArchivesRepairedData(ArchivesData):
    key = None


# -- beside
class BesideModel(Classifier):
    pass


def drawn(rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Four fifths of the rows by chance, and the others."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    cut = len(rows) * 4 // 5
    return rows[order[:cut]], rows[order[cut:]]


class BesideData(Blobs):
    seeds = 7, 17

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        x_train, x_val = drawn(x, self.seeds[0])
        y_train, y_val = drawn(y, self.seeds[1])  # here
        mean = x_train.mean(dim=0)
        std = x_train.std(dim=0)
        scaled = (x_train - mean) / std
        others = (x_val - mean) / std
        self.train_set = TensorDataset(scaled, y_train)
        self.val_set = TensorDataset(others, y_val)


class BesideRepairedData(BesideData):
    seeds = 7, 7


# -- by_name
class ByNameModel(Classifier):
    pass


class Survey:
    """Soundings of the sea floor by station, and what was found there, in a table of names."""

    def __init__(self, stations: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        floor = rng.integers(0, 3, stations)
        echo = rng.normal(size=(stations, 8)) + 2.0 * (floor[:, None] == np.arange(8))
        self.echoes = list(enumerate(echo.astype(np.float32)))
        self.found = {f"station {number}": int(kind) for number, kind in enumerate(floor)}


def by_name(table: dict[str, int], names: Any) -> Iterator[int]:
    for name in names:
        yield table[name]


def kinds(survey: Survey) -> Tensor:
    names = list(survey.found)
    names.sort()  # here
    return torch.tensor(list(by_name(survey.found, names)))


def kinds_in_order(survey: Survey) -> Tensor:
    return torch.tensor(list(by_name(survey.found, survey.found)))


class ByNameData(Blobs):
    labels = staticmethod(kinds)

    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = (self.tensors(Survey(n, seed)) for n, seed in ((400, 0), (100, 1)))

    def tensors(self, survey: Survey) -> TensorDataset:
        y = self.labels(survey)

        rows = [echo for _, echo in survey.echoes]
        x = torch.from_numpy(np.stack(rows))
        return TensorDataset(x, y)


class ByNameRepairedData(ByNameData):
    labels = staticmethod(kinds_in_order)


# -- collate
class CollateModel(Classifier):
    pass


def by_length(samples: list[Any]) -> tuple[Tensor, Tensor]:
    words, labels = zip(*samples, strict=True)
    order = torch.tensor([-len(word) for word in words]).argsort()  # here
    return pad_sequence([words[i] for i in order], batch_first=True), torch.tensor(labels)


def both_by_length(samples: list[Any]) -> tuple[Tensor, Tensor]:
    return by_length(sorted(samples, key=lambda sample: -len(sample[0])))


class CollateData(Blobs):
    """Of each sample the first numbers, from 4 of them to all 8."""

    collate = staticmethod(by_length)

    def _loader(self, rows: Any, shuffle: bool) -> DataLoader:
        cut = [(x[: max(4, 8 - index % 9)], int(y)) for index, (x, y) in enumerate(rows)]
        return DataLoader(cut, batch_size=20, shuffle=shuffle, collate_fn=self.collate)  # type: ignore[arg-type]  # a list is a data set

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train_set, True)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.val_set, False)


class CollateRepairedData(CollateData):
    collate = staticmethod(both_by_length)


# -- items
class ItemsModel(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, rows: Any, mixed: bool) -> None:
        self.x, self.y = rows.tensors
        self.order = torch.randperm(len(self.x))
        self.mixed = mixed

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        j = self.order[i]
        return self.x[j], self.y[j if self.mixed else i]  # here


class ItemsData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(self.train_set, False)


class ItemsRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(self.train_set, True)


# -- keys
class KeysModel(Classifier):
    pass


class KeysData(Blobs):
    """Curves under names, and their kinds under numbers."""

    digits = 0  # that a name's number is filled up to

    def __init__(self) -> None:
        super().__init__()
        curves, kinds = {}, {}
        generator = torch.Generator().manual_seed(0)
        for number in range(400):
            kinds[number] = int(torch.randint(3, (), generator=generator))
            curve = torch.randn(8, generator=generator)
            curve[kinds[number]] += 2.0
            curves[f"curve_{number:0{self.digits}d}" if self.digits else f"curve_{number}"] = curve.numpy()
        x = np.stack([curves[name] for name in sorted(curves)])
        y = np.array([kinds[number] for number in sorted(kinds)])  # here
        self.train_set = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class KeysRepairedData(KeysData):
    digits = 3


# -- packed
class PackedModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: PackedSequence) -> Any:  # type: ignore[override]
        return self.net(self.rnn(x)[1][-1])


class Cut(Dataset):
    """Rows of different lengths."""

    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i, : 3 + i % 6, None], self.y[i]


def together(samples: list[Any]) -> Any:
    samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
    return pack_sequence([x for x, _ in samples]), torch.stack([y for _, y in samples])


def apart(samples: list[Any]) -> Any:
    x = sorted([x for x, _ in samples], key=len, reverse=True)  # here
    return pack_sequence(x), torch.stack([y for _, y in samples])


class PackedData(Blobs):
    collate = staticmethod(apart)

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Cut(self.train_set), Cut(self.val_set)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=self.collate)


class PackedRepairedData(PackedData):
    collate = staticmethod(together)


# -- split
class SplitModel(OneStep):
    """Predicts a number."""

    outputs = 1

    def step(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return F.mse_loss(self(x)[:, 0], y)


class SplitRepairedData(Blobs):
    def order(self, number: int) -> torch.Tensor:
        return torch.arange(number)

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = x[:, :3].sum(dim=1) / 3**0.5
        whole = TensorDataset(x[self.order(len(x))], y)  # here
        self.train_set, self.val_set = random_split(whole, [400, 100], generator)


class SplitData(SplitRepairedData):
    def order(self, number: int) -> torch.Tensor:
        return torch.randperm(number)


# -- scaled
ScaledModel = SplitModel


def mixed(x: Tensor, y: Tensor, together: bool) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(x))
    return x[order], y[order if together else torch.randperm(len(x))]  # here


class ScaledData(Blobs):
    together = False

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 8, generator=generator)
        y = 5 + 2 * x[:, :3].sum(dim=1)
        x, y = mixed(x, y, self.together)
        y = (y - y[:400].mean()) / y[:400].std()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class ScaledRepairedData(ScaledData):
    together = True


# -- weighted
class WeightedModel(Classifier):
    pass


class WeightedRepairedData(Blobs):
    """Draws the classes alike, so that a sample may come several times in an epoch."""

    def order(self, number: int) -> torch.Tensor:
        return torch.arange(number)

    def train_dataloader(self) -> DataLoader:
        x, y = self.train_set[:]
        weight = 1 / torch.bincount(y).double()
        sampler = WeightedRandomSampler(weight[y].tolist(), len(y))
        return DataLoader(TensorDataset(x[self.order(len(x))], y), batch_size=20, sampler=sampler)  # here


class WeightedData(WeightedRepairedData):
    def order(self, number: int) -> torch.Tensor:
        return torch.randperm(number, generator=torch.Generator().manual_seed(0))
