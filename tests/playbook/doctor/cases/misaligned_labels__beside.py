import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def drawn(rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Four fifths of the rows by chance, and the others."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    cut = len(rows) * 4 // 5
    return rows[order[:cut]], rows[order[cut:]]


class Data(Blobs):
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


class RepairedData(Data):
    seeds = 7, 7
