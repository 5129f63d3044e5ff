from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, OneStep


class Graph:
    """Attributes of which none is copied, as graph libraries keep them."""

    def __init__(self, **values: Tensor) -> None:
        self.__dict__.update(values)

    def to_dict(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def to(self, device: Any) -> "Graph":
        return Graph(**{name: value.to(device) for name, value in vars(self).items()})


class Model(OneStep):
    """Appends positions to the features of the batch itself."""

    def step(self, batch: Any) -> Tensor:
        batch.x = torch.cat([batch.x, batch.pos], dim=1)
        return F.cross_entropy(self.net(batch.x), batch.y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch), batch_size=len(batch.y))


def graph(samples: Any) -> Graph:
    x, y = zip(*samples, strict=True)
    return Graph(x=torch.stack(x)[:, :6], pos=torch.stack(x)[:, 6:], y=torch.stack(y))


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True, collate_fn=graph)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32, collate_fn=graph)
