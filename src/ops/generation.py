"""Text that goes on from prompts, token by token."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from playbook import UserError
from src.ops.attention import PADDING

Streamer = Callable[[int, list[int]], Any]


def check_sampling(max_new_tokens: int, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """Refuses options of `generate` that are out of range.

    Raises:
        ValueError: of the option, the value and what was expected.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens: expected at least 1, got {max_new_tokens}")
    if not temperature >= 0:
        raise ValueError(f"temperature: expected at least 0, got {temperature}")
    if top_k < 0:
        raise ValueError(f"top_k: expected at least 0, got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p: expected a share in (0, 1], got {top_p}")
    if not 0 <= min_p < 1:
        raise ValueError(f"min_p: expected a share in [0, 1), got {min_p}")


@torch.inference_mode()
def generate(
    net: nn.Module,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    stop: Sequence[int | list[int]] = (),
    seed: int = 0,
    streamer: Streamer | None = None,
) -> list[list[int]]:
    """Lets a language model go on from each prompt.

    What is drawn for a prompt is a function of it and the seed, whatever else is in the batch. Where prompt and answer
    outgrow the net's `context_length`, the model sees the last half of it, and goes on from there.

    Args:
        net: tokens (B, T) → logits (B, T, V). One with `make_cache` sees each token once.
        prompts: tokens, at least one each.
        max_new_tokens: largest number of tokens that follow, at least 1.
        temperature: divides the logits; 0 takes the likeliest.
        top_k: number of likeliest tokens to draw from; 0 for all.
        top_p: draw from the likeliest tokens whose probabilities reach this share, in (0, 1] (Holtzman et al. 2020).
        min_p: leave out tokens less likely than this share of the likeliest one's probability, in [0, 1).
        stop: tokens, or lists of them, that end an answer, which is then told without them.
        seed: of the draws.
        streamer: called with row and new tokens as they come; a true answer ends the row.

    Returns:
        The tokens that follow each prompt.

    Raises:
        ValueError: an option is out of range.
        UserError: a prompt is empty, or longer than the context.
    """
    check_sampling(max_new_tokens, temperature, top_k, top_p, min_p)
    context = getattr(net, "context_length", None)
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(f"prompt {number}: is empty, expected at least one token")
        if context is not None and len(prompt) > context:
            raise UserError(f"prompt {number}: has {len(prompt):,} tokens, the context holds {context:,}")
    device = next(net.parameters()).device
    was_training = net.training
    net.eval()
    ends = [[token] if isinstance(token, int) else list(token) for token in stop]
    draws = [_Draws(seed, prompt) for prompt in prompts]
    rows = [list(prompt) for prompt in prompts]
    results: list[list[int]] = [[] for _ in prompts]
    going = [True] * len(prompts)
    reader = _Reader(net, device, context, max_new_tokens)
    try:
        for _ in range(max_new_tokens):
            logits = reader.read(rows)  # (B, V)
            if temperature > 0:
                probability = filtered((logits.float() / temperature).softmax(-1), top_k, top_p, min_p)
                numbers = torch.tensor([draw.uniform() for draw in draws], dtype=torch.float64)
                tokens = pick(probability, numbers.to(device))
            else:
                tokens = logits.argmax(-1)
            for row, token in enumerate(tokens.tolist()):
                rows[row].append(token)  # of rows that have ended too, so that all stay as long as they were apart
                if going[row]:
                    results[row].append(token)
                    going[row] = _goes_on(row, results[row], ends, streamer)
            if not any(going):
                break
    finally:
        net.train(was_training)
    return results


def _goes_on(row: int, answer: list[int], ends: list[list[int]], streamer: Streamer | None) -> bool:
    """Tells the streamer of the newest token, or cuts the mark of the end off."""
    for end in ends:
        if answer[-len(end) :] == end:
            del answer[-len(end) :]
            return False
    return not (streamer is not None and streamer(row, answer[-1:]))


class _Reader:
    """Gives the logits of the last place of each row; sees every token once where the net has a cache."""

    def __init__(self, net: nn.Module, device: torch.device, context: int | None, max_new_tokens: int) -> None:
        self.net = net
        self.device = device
        self.context = context
        self.max_new_tokens = max_new_tokens
        self.cache: Any = None
        self.starts: list[int] = []  # of each row, the first token that is seen
        self.num_seen = 0  # places, padding included

    def read(self, rows: list[list[int]]) -> Tensor:
        if self.cache is not None and (self.context is None or self.num_seen < self.context):
            tokens = torch.tensor([row[-1:] for row in rows], device=self.device)  # (B, 1)
            positions = self._positions(rows)[:, None]
            self.num_seen += 1
            return self.net(tokens, positions=positions, cache=self.cache)[:, -1]
        self.starts = self.starts or [0] * len(rows)
        lengths = [len(row) - start for row, start in zip(rows, self.starts, strict=True)]
        if self.context is not None and max(lengths) > self.context:
            keep = max(self.context // 2, 1)
            self.starts = [max(len(row) - keep, start) for row, start in zip(rows, self.starts, strict=True)]
        seen = [row[start:] for row, start in zip(rows, self.starts, strict=True)]
        width = max(map(len, seen))
        tokens = torch.tensor([[0] * (width - len(row)) + row for row in seen], device=self.device)  # (B, T)
        options: dict[str, Any] = {}
        if any(len(row) < width for row in seen):
            lengths = torch.tensor([len(row) for row in seen], device=self.device)[:, None]
            positions = torch.arange(width, device=self.device) - (width - lengths)  # (B, T)
            options = {
                "documents": torch.where(positions < 0, PADDING, 0),
                "positions": positions.clamp(min=0),
            }
        if hasattr(self.net, "make_cache"):
            length = (
                width + self.max_new_tokens if self.context is None else min(self.context, width + self.max_new_tokens)
            )
            self.cache = self.net.make_cache(len(rows), length)  # type: ignore[operator]
            options["cache"] = self.cache
        self.num_seen = width
        return self.net(tokens, **options)[:, -1]

    def _positions(self, rows: list[list[int]]) -> Tensor:
        places = [len(row) - 1 - start for row, start in zip(rows, self.starts, strict=True)]
        return torch.tensor(places, device=self.device)


class _Draws:
    """Numbers in [0, 1) that are a function of the seed and the prompt."""

    def __init__(self, seed: int, prompt: list[int]) -> None:
        digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
        self.generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))

    def uniform(self) -> float:
        return self.generator.random()


def filtered(probability: Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Leaves out unlikely tokens; the rest keep their proportions, and the likeliest always stays.

    Args:
        probability: (B, V).
        top_k: number of likeliest tokens that stay; 0 for all.
        top_p: share that those which stay reach together, after top_k.
        min_p: least share of the likeliest one's probability.

    Returns:
        (B, V), adding up to 1 in each row.
    """
    ordered, order = probability.sort(dim=-1, descending=True, stable=True)
    stays = torch.ones_like(ordered, dtype=torch.bool)
    if top_k:
        stays[..., top_k:] = False
    ordered = ordered.masked_fill(~stays, 0)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered  # share of those that are likelier
    stays &= (before < top_p) & (ordered >= min_p * ordered[..., :1])
    stays[..., 0] = True
    ordered = ordered.masked_fill(~stays, 0)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    return torch.zeros_like(probability).scatter(-1, order, ordered)


def pick(probability: Tensor, number: Tensor) -> Tensor:
    """The token at which the cumulated probabilities pass a number.

    Args:
        probability: (B, V).
        number: (B,), in [0, 1).
    """
    cumulated = probability.double().cumsum(-1)
    tokens = torch.searchsorted(cumulated, (number * cumulated[..., -1])[:, None], right=True)[:, 0]
    # a rounded sum may end before the last token that may be drawn
    last = (probability > 0).int().cumsum(-1).argmax(-1)
    return torch.minimum(tokens, last)
