from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader


class Model(pl.LightningModule):
    """Lengths go to the CPU for packing, and every 20th step prints."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16, padding_idx=0)
        self.rnn = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids, lengths, y = batch
        loss = F.cross_entropy(self(ids, lengths), y)
        if batch_idx % 20 == 0:
            print(f"{batch_idx}: {loss.item():.3f}")
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for length in torch.randint(4, 20, (320,), generator=generator).tolist():
            ids = torch.randint(1, 40, (length,), generator=generator)
            self.rows.append((ids, length, int(ids[0] < 20)))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows, batch_size=20, shuffle=True, collate_fn=_padded)


def _padded(rows: list[tuple[Tensor, int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    ids, lengths, y = zip(*rows, strict=True)
    return pad_sequence(ids, batch_first=True), torch.tensor(lengths), torch.tensor(y)
