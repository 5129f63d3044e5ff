from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases.no_supervised_tokens import Model as Recurrent
from tests.playbook.doctor.cases.prompt_in_loss import Data as Marked


class Model(Recurrent):
    ignored = -100

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens = batch["tokens"]
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=self.ignored)  # here


class Repaired(Model):
    ignored = 0


class Data(Marked):
    def mark(self, length: int) -> dict[str, Tensor]:
        return {}
