from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def scaled(x: Tensor, least: float) -> Tensor:
    mean, std = x.mean(dim=1, keepdim=True), x.std(dim=1, keepdim=True)
    return (x - mean) / std.clamp(min=least)  # here


class Data(Blobs):
    least = 0.0

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        x[123] = 1.0
        self.train_set = TensorDataset(x, y)

    def collate(self, samples: list[Any]) -> Any:
        x, y = default_collate(samples)
        return scaled(x, self.least), y

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)


class RepairedData(Data):
    least = 1e-6
