from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, OneStep

Data = Blobs


class Repaired(OneStep):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(2, 8)

    def divergence(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return F.mse_loss(self.decoder(code), x) + 0.1 * self.divergence(mean, log_variance)

    def configure_optimizers(self) -> Any:
        parts = (self.encoder, self.decoder)
        return torch.optim.Adam([weight for part in parts for weight in part.parameters()], lr=1e-3)


class Model(Repaired):
    def divergence(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()  # here


# -- both_summed
BothSummedData = Blobs


class BothSummedRepaired(Repaired):
    """Both terms are sums: the rate follows the batch size, the balance does not."""

    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return self.error(self.decoder(mean), x) + divergence

    def error(self, y_hat: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(y_hat, y, reduction="sum")


class BothSummedModel(BothSummedRepaired):
    def step(self, batch: Any) -> Tensor:
        x, _ = batch
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()  # here
        return F.mse_loss(self.decoder(mean), x) + divergence
