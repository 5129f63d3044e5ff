from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases.no_supervised_tokens import Model as Recurrent
from tests.playbook.doctor.cases.prompt_in_loss import Data as Marked


class Model(Recurrent):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens = batch["tokens"]
        losses = F.cross_entropy(self(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")  # here
        counts = self.counts(batch)
        return (losses * counts).sum() / counts.sum()

    def counts(self, batch: Any) -> Tensor:
        return (batch["tokens"][:, 1:] != 0).float()


class Repaired(Model):
    def counts(self, batch: Any) -> Tensor:
        place = torch.arange(1, batch["tokens"].shape[1])
        return super().counts(batch) * (place >= batch["prompt_length"][:, None])


class Data(Marked):
    def mark(self, length: int) -> dict[str, Tensor]:
        return {"prompt_length": torch.tensor(length)}
