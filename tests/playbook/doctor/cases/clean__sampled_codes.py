"""A variational autoencoder of a graph: products of codes, drawn with a spread of about one, tell its edges."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(8, 32), nn.Linear(32, 16), nn.Linear(32, 16)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        features, edges = batch
        hidden = self.body(edges @ features / edges.sum(2, keepdim=True)).relu()
        mean, spread = self.mean(hidden), self.spread(hidden)
        codes = torch.randn_like(spread).mul(spread.exp()).add(mean)
        divergence = -0.5 * (1 + 2 * spread - mean**2 - (2 * spread).exp()).sum(2).mean()
        weight = torch.tensor(3.0, device=edges.device)
        loss = F.binary_cross_entropy_with_logits(codes @ codes.transpose(1, 2), edges, pos_weight=weight)
        return loss + divergence / edges.shape[1]

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Data(pl.LightningDataModule):
    """Graphs of 20 nodes of two kinds, which mostly know their own."""

    def train_dataloader(self) -> DataLoader:
        generator = torch.Generator().manual_seed(0)
        kinds = torch.randint(0, 2, (160, 20), generator=generator)
        alike = kinds[:, :, None] == kinds[:, None]
        edges = (torch.rand(160, 20, 20, generator=generator) < torch.where(alike, 0.5, 0.1)).triu(1).float()
        edges = edges + edges.transpose(1, 2) + torch.eye(20)
        features = torch.randn(160, 20, 8, generator=generator) + kinds[:, :, None]
        return DataLoader(TensorDataset(features, edges), batch_size=16, shuffle=True)
