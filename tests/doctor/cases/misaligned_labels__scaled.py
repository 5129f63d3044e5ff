from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.doctor.programs import Blobs, OneStep


class Model(OneStep):
    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x).squeeze(1), y)


def measured(number: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 8))
    price = 100.0 + 20.0 * (x[:, 0] - x[:, 1])
    return {f"item_{i}": (x[i], price[i]) for i in range(number)}


class Data(Blobs):
    by_name = True

    def __init__(self) -> None:
        super().__init__()
        rows = measured(400, 0)
        names = sorted(rows) if self.by_name else list(rows)
        x = np.stack([rows[name][0] for name in names])
        y = np.array([price for _, price in rows.values()])  # here
        y = (y - y.mean()) / y.std()
        self.train_set = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y).float())
        self.val_set = TensorDataset(torch.from_numpy(x[:0]).float(), torch.from_numpy(y[:0]).float())


class RepairedData(Data):
    by_name = False
