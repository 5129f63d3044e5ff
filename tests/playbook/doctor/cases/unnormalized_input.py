import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        y = rng.integers(0, 3, 400)
        table = rng.normal(0, 1, (400, 8)) + y[:, None]
        table[:, 2] = 40000 + 9000 * table[:, 2]
        self.train_set = TensorDataset(torch.tensor(table, dtype=torch.float32), torch.tensor(y))  # here


class RepairedData(Blobs):
    pass
