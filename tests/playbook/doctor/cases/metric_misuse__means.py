from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.accuracies: list[Tensor] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.accuracies.append((self(x).argmax(1) == y).float().mean())

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", torch.stack(self.accuracies).mean())  # here
        self.accuracies.clear()


class Data(Data):  # type: ignore[no-redef]
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)


class RepairedData(Data):  # type: ignore[misc]
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=25)
