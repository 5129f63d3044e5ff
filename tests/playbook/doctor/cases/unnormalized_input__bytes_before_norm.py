from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Takes bytes as they are; a norm behind the first layer divides its results by their spread: this is advice."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.float())  # here


class Data(Blobs):
    def prepared(self, x: Tensor) -> Tensor:
        return (128 + 25 * x).clamp(0, 255).byte()

    def loader(self, samples: TensorDataset, shuffle: bool) -> DataLoader:
        x, y = samples[:]
        return DataLoader(TensorDataset(self.prepared(x), y), batch_size=20, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        return self.loader(self.train_set, True)  # type: ignore[arg-type]  # a part of one

    def val_dataloader(self) -> DataLoader:
        return self.loader(self.val_set, False)  # type: ignore[arg-type]


class RepairedData(Data):
    def prepared(self, x: Tensor) -> Tensor:
        return super().prepared(x) / 128 - 1
