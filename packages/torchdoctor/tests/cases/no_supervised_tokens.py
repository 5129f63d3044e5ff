from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CONTEXT = 12


class Chats(Dataset):
    """Questions of 10 to 29 tokens, and answers of 4; cut at the end to fit."""

    keep_end = False

    def __init__(self, num: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(num):
            length = int(torch.randint(10, 30, (1,), generator=generator))
            question = torch.randint(1, 20, (length,), generator=generator)
            self.rows.append((question, question[-4:] + 20))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        question, answer = self.rows[index]
        tokens = torch.cat([question, answer])
        labels = torch.cat([torch.full_like(question, -100), answer])
        part = slice(-CONTEXT, None) if self.keep_end else slice(None, CONTEXT)
        return {"input_ids": tokens[part], "labels": labels[part]}  # here


class Answers(Chats):
    keep_end = True


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 40)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        logits = self(batch["input_ids"])
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Data(pl.LightningDataModule):
    kind = Chats

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.kind(200, 0), batch_size=4, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.kind(40, 1), batch_size=4)


class RepairedData(Data):
    kind = Answers
