from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep

SIDE = 16


class Model(OneStep):
    """A picture as a function of its coordinates, put together from all of a validation's pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.pixels = list[Tensor]()

    def step(self, batch: Any) -> Tensor:
        place, value = batch
        return nn.functional.mse_loss(self.net(place), value)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.pixels.append(self.net(batch[0]))

    def on_validation_epoch_end(self) -> None:
        picture = torch.cat(self.pixels).reshape(SIDE, SIDE)
        self.log("contrast", picture.std())
        self.pixels.clear()


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = pixels(0.0), pixels(0.5)


def pixels(offset: float) -> TensorDataset:
    row, column = torch.meshgrid(torch.arange(SIDE) + offset, torch.arange(SIDE) + offset, indexing="ij")
    place = torch.stack([row, column], dim=-1).reshape(-1, 2) / SIDE * 2 - 1
    return TensorDataset(place, torch.sin(3 * place[:, :1]) * torch.cos(2 * place[:, 1:]))
