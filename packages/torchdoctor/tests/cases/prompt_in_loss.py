from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from cases import no_supervised_tokens


class Model(no_supervised_tokens.Model):
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


# -- length
class LengthModel(no_supervised_tokens.Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens = batch["tokens"]
        losses = F.cross_entropy(self(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")  # here
        counts = self.counts(batch)
        return (losses * counts).sum() / counts.sum()

    def counts(self, batch: Any) -> Tensor:
        return (batch["tokens"][:, 1:] != 0).float()


class LengthRepaired(LengthModel):
    def counts(self, batch: Any) -> Tensor:
        place = torch.arange(1, batch["tokens"].shape[1])
        return super().counts(batch) * (place >= batch["prompt_length"][:, None])


class LengthData(Data):
    def mark(self, length: int) -> dict[str, Tensor]:
        return {"prompt_length": torch.tensor(length)}
