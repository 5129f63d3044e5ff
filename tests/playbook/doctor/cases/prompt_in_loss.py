from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.cases.no_supervised_tokens import Model as Recurrent


class Model(Recurrent):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens = batch["tokens"]
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        labels = batch["tokens"].masked_fill(~batch["is_answer"].bool(), 0)
        logits = self(batch["tokens"][:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=0)


class Data(pl.LightningDataModule):
    """Questions of 5 to 8 tokens, and answers of 4, with zeros behind."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for _ in range(240):
            length = int(torch.randint(5, 9, (1,), generator=generator))
            question = torch.randint(1, 20, (length,), generator=generator)
            tokens = F.pad(torch.cat([question, question[-4:] + 20]), (0, 8 - length))
            self.rows.append({"tokens": tokens, **self.mark(length)})

    def mark(self, length: int) -> dict[str, Tensor]:
        place = torch.arange(12)
        return {"is_answer": ((place >= length) & (place < length + 4)).long()}

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows[:200], batch_size=20, shuffle=True)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.rows[200:], batch_size=20)  # type: ignore[arg-type]
