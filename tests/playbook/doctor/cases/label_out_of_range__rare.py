from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, x: Tensor, y: Tensor, unknown: int) -> None:
        self.x, self.y, self.unknown = x, y, unknown

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        label = int(self.y[i])
        if i == 300:
            label = self.unknown  # here
        return self.x[i], label


class Data(Blobs):
    unknown = 255

    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(*self.train_set.tensors, self.unknown)  # type: ignore[attr-defined]


class RepairedData(Data):
    unknown = -100
