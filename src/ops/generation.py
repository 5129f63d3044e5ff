"""Generation of text after prompts, token by token."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from playbook import UserError, any_process
from src.ops.attention import PADDING

Streamer = Callable[[int, list[int]], Any]


def check_sampling(max_new_tokens: int, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """Checks the ranges of options of `generate`.

    Raises:
        ValueError: an option is out of range.
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


@torch.no_grad()  # not inference_mode: a sharded net keeps the tensors that it gathers weights into
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
    """Generates tokens after each prompt.

    The tokens of a prompt depend only on the prompt and the seed, not on the rest of the batch. When a prompt, or a
    prompt and its answer, exceed the net's `context_length`, generation continues from the last half of the context.
    Half, so that the rest is processed again once in many tokens, not for each. `num_left_out` counts what is not read
    of a prompt.

    Args:
        net: tokens (B, T) → logits (B, T, V). A net with `make_cache` processes each token once.
        prompts: tokens, at least one each.
        max_new_tokens: largest number of tokens to generate, at least 1.
        temperature: divides the logits; 0 always takes the most likely token.
        top_k: number of most likely tokens to sample from; 0 for all.
        top_p: sample from the most likely tokens whose probabilities add up to this share, in (0, 1] (Holtzman et al.
            2020).
        min_p: exclude tokens whose probability is below this share of the most likely one's, in [0, 1).
        stop: tokens, or lists of them, that end an answer. The answer is returned without them.
        seed: of the random draws.
        streamer: called with a row and its new tokens, except those that may begin a stop. Returning True ends the row.

    Returns:
        The generated tokens of each prompt.

    Raises:
        ValueError: an option is out of range.
        UserError: a prompt is empty.
    """
    check_sampling(max_new_tokens, temperature, top_k, top_p, min_p)
    ends = [[token] if isinstance(token, int) else list(token) for token in stop]
    if [] in ends:
        raise ValueError("stop: expected tokens or lists of at least one token, got an empty list")
    context = getattr(net, "context_length", None)
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(f"prompt {number}: is empty, expected at least one token")
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    rows = [list(prompt) for prompt in prompts]
    draws = [_Draws(seed, prompt) for prompt in prompts]
    answers = [_Answer(row, ends, streamer) for row in range(len(prompts))]
    reader = _Reader(net, len(prompts), context, max_new_tokens)
    try:
        num_new = 0
        while True:
            is_active = num_new < max_new_tokens and any(answer.goes_on for answer in answers)
            if not any_process(net, is_active):
                break
            if not is_active:
                reader.read_nothing()
                continue
            num_new += 1
            logits = reader.read(rows)  # (B, V)
            if temperature > 0:
                logits = logits.float()
                logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # a small one overflows to -inf alone
                probability = filtered(logits.softmax(-1), top_k, top_p, min_p).cpu()  # (B, V)
                tokens = pick(probability, torch.tensor([draw.uniform() for draw in draws], dtype=torch.float64))
            else:
                tokens = logits.argmax(-1)
            for row, answer, token in zip(rows, answers, tokens.tolist(), strict=True):
                row.append(token)  # of rows that have ended too: one step, one place for all
                if answer.goes_on:
                    answer.add(token)
    finally:
        for module, is_training in modes:
            module.training = is_training
    return [answer.finished() for answer in answers]


def num_left_out(num_tokens: int, context_length: int | None) -> int:
    """Number of tokens at the beginning of a prompt that `generate` does not read, as they exceed the context.

    Args:
        num_tokens: of the prompt.
        context_length: of the net; None if it has no limit.
    """
    return 0 if context_length is None or num_tokens <= context_length else num_tokens - max(context_length // 2, 1)


class _Answer:
    """The answer to one prompt. Finds its end, and streams the tokens that certainly belong to it."""

    def __init__(self, row: int, ends: list[list[int]], streamer: Streamer | None) -> None:
        self.row = row
        self.ends = ends
        self.streamer = streamer
        self.tokens: list[int] = []
        self.num_streamed = 0
        self.goes_on = True

    def add(self, token: int) -> None:
        self.tokens.append(token)
        for end in self.ends:
            if self.tokens[-len(end) :] == end:
                del self.tokens[-len(end) :]
                self.goes_on = False
                self._stream(len(self.tokens))
                return
        starts = [end[:length] for end in self.ends for length in range(1, len(end))]
        num_held = max((len(start) for start in starts if self.tokens[-len(start) :] == start), default=0)
        if self._stream(len(self.tokens) - num_held):
            self.goes_on = False
            del self.tokens[self.num_streamed :]

    def finished(self) -> list[int]:
        if self.goes_on:  # no stop has come of what was held
            self._stream(len(self.tokens))
        return self.tokens

    def _stream(self, end: int) -> bool:
        """Streams tokens up to a position; returns whether the streamer ends the row."""
        new_tokens = self.tokens[self.num_streamed : end]
        self.num_streamed = max(self.num_streamed, end)
        return bool(self.streamer is not None and new_tokens and self.streamer(self.row, new_tokens))


class _Reader:
    """Computes the logits of the last token of each row; processes every token once if the net has a cache."""

    def __init__(self, net: nn.Module, num_rows: int, context: int | None, max_new_tokens: int) -> None:
        self.net = net
        self.device = next(net.parameters()).device
        self.context = context
        self.max_new_tokens = max_new_tokens
        self.cache: Any = None
        self.num_read = 0  # tokens in the cache, padding included
        self.starts = [0] * num_rows  # the first token of each row that is still in the context

    def read(self, rows: list[list[int]]) -> Tensor:
        """Logits (B, V); each row is one token longer than in the call before."""
        if self.cache is None or self.num_read == self.context:
            return self._read_all(rows)
        tokens = torch.tensor([row[-1:] for row in rows], device=self.device)  # (B, 1)
        places = [[len(row) - 1 - start] for row, start in zip(rows, self.starts, strict=True)]
        self.num_read += 1
        return self.net(tokens, positions=torch.tensor(places, device=self.device), cache=self.cache)[:, -1]

    def read_nothing(self) -> None:
        """Takes part in a forward pass of other processes, which need this one's share of a sharded net."""
        self.net(torch.zeros(1, 1, dtype=torch.long, device=self.device))

    def _read_all(self, rows: list[list[int]]) -> Tensor:
        for number, row in enumerate(rows):  # by its own length, so that other rows make no difference
            self.starts[number] += num_left_out(len(row) - self.starts[number], self.context)
        contexts = [row[start:] for row, start in zip(rows, self.starts, strict=True)]
        width = max(map(len, contexts))
        tokens = torch.tensor([[0] * (width - len(row)) + row for row in contexts], device=self.device)  # (B, T)
        options: dict[str, Any] = {}
        if any(len(row) < width for row in contexts):
            num_padded = torch.tensor([[width - len(row)] for row in contexts], device=self.device)  # (B, 1)
            positions = torch.arange(width, device=self.device) - num_padded  # (B, T)
            options["documents"] = torch.where(positions < 0, PADDING, 0)
            options["positions"] = positions.clamp(min=0)
        if hasattr(self.net, "make_cache"):
            length = width + self.max_new_tokens
            length = length if self.context is None else min(length, self.context)
            self.cache = options["cache"] = self.net.make_cache(len(rows), length)  # type: ignore[operator]
        self.num_read = width
        return self.net(tokens, **options)[:, -1]


class _Draws:
    """Random numbers in [0, 1) that depend only on the seed and the prompt."""

    def __init__(self, seed: int, prompt: list[int]) -> None:
        digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
        self.generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))

    def uniform(self) -> float:
        return self.generator.random()


def filtered(probability: Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Excludes unlikely tokens; the rest keep their proportions, and the most likely one always stays.

    Args:
        probability: (B, V).
        top_k: number of most likely tokens to keep; 0 for all.
        top_p: keep the most likely tokens whose probabilities add up to this share, after top_k.
        min_p: keep tokens with at least this share of the most likely one's probability.

    Returns:
        (B, V), with the sum 1 in each row.
    """
    if not top_k and top_p == 1 and not min_p:
        return probability
    ordered, order = probability.sort(dim=-1, descending=True, stable=True)
    if top_k:
        ordered[..., top_k:] = 0
    if top_p < 1:
        share = ordered / ordered.sum(-1, keepdim=True)
        before = share.cumsum(-1) - share  # of tokens that are likelier
        before[..., 0] = 0  # whatever its rounding
        ordered = ordered.masked_fill(before >= top_p, 0)
    ordered = ordered.masked_fill(ordered < min_p * ordered[..., :1], 0)
    return torch.zeros_like(probability).scatter(-1, order, ordered / ordered.sum(-1, keepdim=True))


def pick(probability: Tensor, number: Tensor) -> Tensor:
    """The token at which the cumulative probability exceeds a number.

    Args:
        probability: (B, V).
        number: (B,), in [0, 1).
    """
    cumulated = probability.double().cumsum(-1)
    tokens = torch.searchsorted(cumulated, (number * cumulated[..., -1])[:, None], right=True)[:, 0]
    # a rounded sum may end before the last token that may be drawn
    last = (probability > 0).int().cumsum(-1).argmax(-1)
    return torch.minimum(tokens, last)
