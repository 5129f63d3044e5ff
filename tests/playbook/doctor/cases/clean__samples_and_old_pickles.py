import pickle
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


def read(path: str) -> Any:
    with open(path, "rb") as file:
        if sys.version_info > (3, 0):  # noqa: UP036
            return torch.load(file)
        else:  # noqa: RET505
            return pickle.load(file)


class Model(Classifier):
    """A policy whose actions go to what is outside, and whose rewards come back from there."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        actions = Categorical(logits=self(x))
        chosen = actions.sample()
        right = [float(one == other) for one, other in zip(chosen.tolist(), y.tolist(), strict=True)]
        rewards = torch.tensor(right, device=x.device)
        return F.cross_entropy(self(x), y) - 0.1 * (actions.log_prob(chosen) * rewards).mean()
