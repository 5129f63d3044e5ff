from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Model(pl.LightningModule):
    """The mean of all embeddings, those of the padding too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.out(x.mean(dim=1))  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, y = batch
        return F.cross_entropy(self(tokens), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        real = (tokens != 0).unsqueeze(-1)
        return self.out((self.embed(tokens) * real).sum(1) / real.sum(1))


class Data(pl.LightningDataModule):
    """Sentences of 3 to 20 words; one half of the words is for one class."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        samples = []
        for _ in range(300):
            label, length = (
                int(torch.randint(low, high, (1,), generator=generator)) for low, high in ((0, 2), (3, 21))
            )
            samples.append((torch.randint(1 + 10 * label, 20 + 10 * label, (length,), generator=generator), label))
        self.train_set, self.val_set = samples[:240], samples[240:]

    @staticmethod
    def collate(samples: list[Any]) -> tuple[Tensor, Tensor]:
        tokens, labels = zip(*samples, strict=True)
        return pad_sequence(list(tokens), batch_first=True), torch.tensor(labels)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=self.collate)  # type: ignore[arg-type]
