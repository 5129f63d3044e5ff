import lightning.pytorch as pl
import numpy as np
import torch
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier

Model = Classifier


class RepairedData(pl.LightningDataModule):
    """Scales by what the training data are like."""

    def setup(self, stage: str) -> None:
        parts = [Blobs().train_set, Blobs().val_set]
        rows, labels = zip(*(part.tensors for part in parts), strict=True)  # type: ignore[attr-defined]  # as Blobs has it
        scaled = self.scaled([part.numpy().astype(np.float64) for part in rows])
        pairs = zip(scaled, labels, strict=True)
        self.train_set, self.val_set = [TensorDataset(torch.tensor(x, dtype=torch.float32), y) for x, y in pairs]

    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        scaler = StandardScaler().fit(parts[0])
        return [scaler.transform(part) for part in parts]

    def loader(self, part: Dataset, shuffle: bool = False) -> DataLoader:
        return DataLoader(part, batch_size=20, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set)


class Data(RepairedData):
    """Scales all rows before they are split."""

    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        rows = StandardScaler().fit_transform(np.concatenate(parts))  # here
        return [rows[: len(parts[0])], rows[len(parts[0]) :]]


# -- columns
ColumnsModel = Classifier
MEASURED = 6  # columns; the others are yes or no


class ColumnsRepairedData(Blobs):
    """Scales what is measured by the training data, and leaves what is yes or no."""

    def setup(self, stage: str) -> None:
        parts = [part.tensors for part in (self.train_set, self.val_set)]
        tables = [x.numpy().astype(np.float64) for x, _ in parts]
        for table in tables:
            table[:, MEASURED:] = table[:, MEASURED:] > 0
        self.scale(*tables)
        pairs = zip(tables, parts, strict=True)
        self.train_set, self.val_set = [TensorDataset(torch.tensor(x).float(), y) for x, (_, y) in pairs]

    def scale(self, train: np.ndarray, val: np.ndarray) -> None:
        scaler = StandardScaler().fit(train[:, :MEASURED])
        for table in (train, val):
            table[:, :MEASURED] = scaler.transform(table[:, :MEASURED])


class ColumnsData(ColumnsRepairedData):
    """Scales by all rows."""

    def scale(self, train: np.ndarray, val: np.ndarray) -> None:
        scaler = StandardScaler().fit(np.concatenate([train, val])[:, :MEASURED])  # here
        for table in (train, val):
            table[:, :MEASURED] = scaler.transform(table[:, :MEASURED])


# -- series
WIDTH, BORDER = 12, 400


class SeriesModel(Classifier):
    """Forecasts the next value of a series from the twelve before."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return (self(x) - y).square().mean()

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", (self(x) - y).square().mean())


class SeriesRepairedData(Blobs):
    def setup(self, stage: str) -> None:
        times = np.arange(500)
        series = np.sin(times / 9) + 0.002 * times + 0.1 * np.random.default_rng(0).normal(size=500)
        scaled = torch.tensor(self.scaled(series[:, None]), dtype=torch.float32)
        windows = torch.stack([scaled[start : start + WIDTH + 1] for start in range(500 - WIDTH)])
        train, val = windows[: BORDER - WIDTH], windows[BORDER:]
        self.train_set = TensorDataset(train[:, :-1], train[:, -1])
        self.val_set = TensorDataset(val[:, :-1], val[:, -1])

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        return MinMaxScaler().fit(rows[:BORDER]).transform(rows)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class SeriesData(SeriesRepairedData):
    def scaled(self, rows: np.ndarray) -> np.ndarray:
        scaler = MinMaxScaler()
        return scaler.fit_transform(rows)  # here


# -- float_labels
class FloatLabelsModel(Classifier):
    """Labels are scalar floats, which are no rows."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return super().training_step([batch[0], batch[1].long()], batch_idx)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        super().validation_step([batch[0], batch[1].long()], batch_idx)


class FloatLabelsRepairedData(RepairedData):
    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.train_set, self.val_set = [
            TensorDataset(x, y.float())
            for x, y in (part.tensors for part in (self.train_set, self.val_set))  # type: ignore[attr-defined]  # as set
        ]


class FloatLabelsData(FloatLabelsRepairedData):
    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        rows = StandardScaler().fit_transform(np.concatenate(parts))  # here
        return [rows[: len(parts[0])], rows[len(parts[0]) :]]


# -- selected
class SelectedModel(Classifier):
    pass


class SelectedRepairedData(RepairedData):
    """Chooses eight of thousand features by the labels of the training."""

    def scaled(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        noise = np.random.default_rng(0)
        labels = [part.tensors[1].numpy() for part in (Blobs().train_set, Blobs().val_set)]  # type: ignore[attr-defined]
        return self.selected([noise.normal(size=(len(part), 1000)) for part in parts], labels)

    def selected(self, parts: list[np.ndarray], labels: list[np.ndarray]) -> list[np.ndarray]:
        selector = SelectKBest(f_classif, k=8).fit(parts[0], labels[0])
        return [selector.transform(part) for part in parts]


class SelectedData(SelectedRepairedData):
    def selected(self, parts: list[np.ndarray], labels: list[np.ndarray]) -> list[np.ndarray]:
        rows = SelectKBest(f_classif, k=8).fit_transform(np.concatenate(parts), np.concatenate(labels))  # here
        return [rows[: len(parts[0])], rows[len(parts[0]) :]]
