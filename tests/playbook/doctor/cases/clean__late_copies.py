from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    """Keeps two copies: a target that has its turn after many steps, and an average that is evaluated.

    Its rate rises at each step, which a training of so few does not take far. A graph is a sparse attribute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.target = deepcopy(self.net)
        self.average = deepcopy(self.net).eval()
        self.graph = torch.eye(3).to_sparse()

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        logits = (self.graph.to(x.device) @ self(x).T).T
        if self.global_step > 10_000:
            logits = logits + 0.1 * self.target(x).detach()
        return F.cross_entropy(logits, y)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        schedule = LambdaLR(optimizer, lambda step: (step + 1) / 20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
