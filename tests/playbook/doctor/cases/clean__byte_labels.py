"""Classes as bytes, for a loss that is written by hand."""

from typing import Any

from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Model(OneStep):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        chosen = one_hot(y.long(), 3)
        return -(self(x).log_softmax(1) * chosen).sum(1).mean()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        (x, y), (val_x, val_y) = self.train_set[:], self.val_set[:]
        self.train_set, self.val_set = TensorDataset(x, y.byte()), TensorDataset(val_x, val_y.byte())
