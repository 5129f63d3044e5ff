from typing import Any

import torch

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        x = x + 0.1 * torch.randn_like(x)  # here
        return x, y


class RepairedData(Blobs):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        if self.trainer is not None and self.trainer.training:
            x = x + 0.1 * torch.randn_like(x)
        return x, y
