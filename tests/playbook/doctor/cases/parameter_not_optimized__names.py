from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    endings: tuple[str, ...] = ("weight", "bias", "scale")

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scale)

    def configure_optimizers(self) -> Any:
        chosen = []
        for name, parameter in self.named_parameters():  # here
            if name.endswith(self.endings):
                chosen.append(parameter)
        groups = [{"params": chosen, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-3)


class Model(Repaired):
    endings = ("weight", "bias")
