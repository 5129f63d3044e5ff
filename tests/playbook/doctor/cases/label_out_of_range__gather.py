from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return -torch.log_softmax(self(x), dim=1).gather(1, y[:, None]).mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = torch.utils.data.TensorDataset(x, y + 1)  # here


class RepairedData(Blobs):
    pass
