"""Episodes that the model plays while the training waits for them; the device is that of the machine."""

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from tests.playbook.doctor.programs import Classifier

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Episodes(IterableDataset):
    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            time.sleep(0.002)
            state = torch.randn(8)
            with torch.no_grad():
                action = int(self.net(state).softmax(0).multinomial(1))
            yield state, action


class Model(Classifier):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Episodes(self.net), batch_size=20)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, action = batch
        return F.cross_entropy(self(x).to(DEVICE), action.to(DEVICE))


def Data() -> None:  # noqa: N802 - the loaders are the model's
    return None
