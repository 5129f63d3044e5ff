import numpy as np
import torch
from sklearn.preprocessing import MinMaxScaler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier

WIDTH, BORDER = 12, 400


class Model(Classifier):
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


class RepairedData(Blobs):
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


class Data(RepairedData):
    def scaled(self, rows: np.ndarray) -> np.ndarray:
        scaler = MinMaxScaler()
        return scaler.fit_transform(rows)  # here
