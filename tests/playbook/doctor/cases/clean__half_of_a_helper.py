from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Codec(nn.Module):
    """A trained autoencoder, of which the steps need the first half."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 16), nn.Linear(16, 8)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.codec = Codec()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.codec.encode(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), lr=1e-3)
