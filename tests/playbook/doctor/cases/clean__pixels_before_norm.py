"""Values of 0 to 255 go to a layer whose results a norm divides by their spread."""

from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class Data(Blobs):
    def scaled(self, samples: TensorDataset, shuffle: bool) -> DataLoader:
        x, y = samples[:]
        return DataLoader(TensorDataset((128 + 25 * x).clamp(0, 255), y), batch_size=20, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        return self.scaled(self.train_set, True)  # type: ignore[arg-type]  # a part of one

    def val_dataloader(self) -> DataLoader:
        return self.scaled(self.val_set, False)  # type: ignore[arg-type]
