from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


def rate(step: int) -> float:
    """A rate as such (Vaswani et al. 2017), and no factor of one."""
    return 64**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5)


class Model(Classifier):
    lr = 3e-4

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)  # here
        return [optimizer], [{"scheduler": LambdaLR(optimizer, rate), "interval": "step"}]


class Repaired(Model):
    lr = 1.0
