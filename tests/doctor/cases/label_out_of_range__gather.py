from typing import Any

import torch
from torch import Tensor

from tests.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return -torch.log_softmax(self(x), dim=1).gather(1, y[:, None]).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = torch.utils.data.TensorDataset(x, y + 1)  # here


class RepairedData(Blobs):
    pass
