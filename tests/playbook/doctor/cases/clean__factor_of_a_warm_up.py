from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Warms up from a tenth of the rate, which is a tenth as well."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + 1) / 10))]
