from typing import Any

import torch

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3, weight_decay=1e-2)  # here


class Repaired(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
