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
        x = rng.normal(0, 1, (400, 8)).astype(np.float32) + y[:, None]
        x[:, 3] = np.log(np.maximum(x[:, 3], 0))  # here
        x = np.clip(x, -1e30, None) if self.clipped else x
        self.train_set = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))

    clipped = False


class RepairedData(Blobs):
    pass
