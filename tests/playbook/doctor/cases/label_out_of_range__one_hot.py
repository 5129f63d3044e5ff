from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), F.one_hot(y, num_classes=3).float())


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = torch.utils.data.TensorDataset(x, 2 * y)  # here


class RepairedData(Blobs):
    pass
