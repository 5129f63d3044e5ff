from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from cases import no_supervised_tokens, prompt_in_loss
from programs import Blobs, OneStep


class Model(no_supervised_tokens.Model):
    ignored = -100

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens = batch["tokens"]
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=self.ignored)  # here


class Repaired(Model):
    ignored = 0


class Data(prompt_in_loss.Data):
    def mark(self, length: int) -> dict[str, Tensor]:
        return {}


# -- translated
class TranslatedModel(OneStep):
    """Writes each word of one alphabet in another; 0 pads both."""

    ignored = -100

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.embedding(x))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x).transpose(1, 2), y, ignore_index=self.ignored)  # here


class TranslatedRepaired(TranslatedModel):
    ignored = 0


class TranslatedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(1, 12, (500, 9), generator=generator)
        lengths = torch.randint(3, 10, (500,), generator=generator)
        words *= torch.arange(9) < lengths[:, None]
        letters = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(11, generator=generator)])
        self.train_set = TensorDataset(words[:400], letters[words[:400]])
        self.val_set = TensorDataset(words[400:], letters[words[400:]])
