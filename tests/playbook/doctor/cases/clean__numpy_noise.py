from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data", "Model"]


class Model(pl.LightningModule):
    """Inputs with noise of NumPy's, and no validation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        noise = torch.from_numpy(np.random.default_rng(np.random.randint(2**31)).normal(0, 0.3, x.shape)).float()
        return F.cross_entropy(self.net(x + noise), y)

    def configure_optimizers(self) -> Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)
