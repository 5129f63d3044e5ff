"""A target that follows the net, in ten steps whose rate is still zero; the optimizer has both."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, nn.BatchNorm1d(32))
        self.net[0] = nn.Linear(8, 32, bias=False)
        self.target = deepcopy(self.net)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        with torch.no_grad():
            soft = self.target(x).softmax(1)
        logits = self(x)
        return F.cross_entropy(logits, y) + 0.1 * F.cross_entropy(logits, soft)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for own, followed in zip(self.target.parameters(), self.net.parameters(), strict=True):
                own.lerp_(followed, 0.01)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step // 10 / 10))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]
