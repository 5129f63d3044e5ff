"""A validation step that writes into its batch through NumPy, after its loss: every batch is read once."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return binary_cross_entropy_with_logits(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        assert float(y.max()) <= 1, "written to"
        self.log("val_loss", binary_cross_entropy_with_logits(self(x), y))
        mask = y.cpu().numpy()
        mask *= 255
        self.log("area", float((mask > 127).mean()))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        y = (avg_pool2d(x, 3, 1, 1) > 0).float()
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, num_workers=1)  # whose batches are in shared memory
