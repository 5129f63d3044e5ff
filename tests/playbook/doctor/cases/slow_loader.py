import time
from typing import Any

from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        time.sleep(0.008)  # here
        return self.x[i], self.y[i]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Rows(self.train_set), batch_size=20, shuffle=True)


class RepairedData(Blobs):
    pass
