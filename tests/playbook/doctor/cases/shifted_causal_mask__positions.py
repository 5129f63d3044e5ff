from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases.shifted_causal_mask import Data
from tests.playbook.doctor.cases.shifted_causal_mask import Repaired as Whole

__all__ = ["Data"]


class Model(Whole):
    """Positions begin anew with every piece; the cache is a dict that the model fills."""

    def make_cache(self, batch_size: int, length: int) -> dict[str, Tensor]:
        return {}

    def forward(self, tokens: Tensor, cache: dict[str, Tensor] | None = None) -> Any:
        start = self.start(cache)
        x = self.embed(tokens)
        x = x + self.place(torch.arange(start, start + tokens.shape[1], device=tokens.device))  # here
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if cache is not None:
            k = cache["k"] = torch.cat([cache["k"], k], dim=1) if cache else k
            v = cache["v"] = torch.cat([cache["v"], v], dim=1) if "v" in cache else v
        mask = self.seen(q, k)
        return self.out(x + F.scaled_dot_product_attention(q, k, v, mask))

    def start(self, cache: dict[str, Tensor] | None) -> int:
        return 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class Repaired(Model):
    def start(self, cache: dict[str, Tensor] | None) -> int:
        return cache["k"].shape[1] if cache else 0
