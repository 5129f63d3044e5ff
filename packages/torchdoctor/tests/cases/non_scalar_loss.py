from typing import Any

import torch.nn.functional as F

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return {"loss": F.cross_entropy(self(x), y, reduction="none")}  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": super().training_step(batch, batch_idx)["loss"].mean()}
