"""Generates text after prompts, token by token, with the random numbers of `predict`."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .answers import softmax
from .errors import InputError
from .vocabularies import Vocabulary, load_vocabulary

log = logging.getLogger(__name__)

PADDING = -1  # as a document
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
Forward = Callable[[dict[str, np.ndarray]], np.ndarray]  # tokens, documents and positions (B, T) → logits (B, T, V)


class Generator:
    """Generates answers to prompts.

    The program has no memory of earlier steps, so each one reads the whole context again. When a prompt, or prompt and
    answer, exceed the context, generation continues from its last half; `left_out_tokens` of an answer counts what is
    not read of the prompt.

    Args:
        plan: the manifest's `postprocessing`: `tokenizer` or None, `context_length` or None, `stop_tokens`, `seed`, and
            the options `max_new_tokens`, `temperature`, `top_k`, `top_p`, `min_p` and `stop`.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.vocabulary: Vocabulary | None = load_vocabulary(plan["tokenizer"]) if plan.get("tokenizer") else None
        end = None if self.vocabulary is None else self.vocabulary.end
        stops = [*plan.get("stop_tokens", ()), *([] if end is None else [end])]
        self.ends = [[token] if isinstance(token, int) else list(token) for token in stops]

    def answers(self, forward: Forward, prompts: Sequence[list[int]], options: Mapping[str, Any]) -> list[dict]:
        """`prompt` and `text` for each prompt; `tokens` without a vocabulary; `left_out_tokens` of those too long."""
        rows = _Rows(self, prompts, options)
        for _ in rows.steps(forward):
            pass
        tokens = [row.finished() for row in rows.answers]
        answers: list[dict[str, Any]] = [{"tokens": row} for row in tokens]
        if self.vocabulary is not None:
            answers = [
                {"prompt": self.vocabulary.decode(prompt), "text": _cut(self.vocabulary.decode(row), rows.stop)}
                for prompt, row in zip(prompts, tokens, strict=True)
            ]
        for answer, prompt in zip(answers, prompts, strict=True):
            if number := num_left_out(len(prompt), rows.context):
                answer["left_out_tokens"] = number
        return answers

    def stream(self, forward: Forward, prompt: list[int], options: Mapping[str, Any]) -> Iterator[str]:
        """Parts of the answer to one prompt, each as soon as it is certain."""
        if self.vocabulary is None:
            raise InputError("the model has no vocabulary, so it cannot stream text")
        rows = _Rows(self, [prompt], options)
        if number := num_left_out(len(prompt), rows.context):
            log.warning(
                "the prompt has %d tokens, the context %s: the first %d are left out", len(prompt), rows.context, number
            )
        return self._parts(forward, rows, self.vocabulary)

    def _parts(self, forward: Forward, rows: "_Rows", vocabulary: Vocabulary) -> Iterator[str]:
        shown = ""
        for _ in rows.steps(forward):
            answer = rows.answers[0]
            text = vocabulary.decode(answer.tokens[: answer.num_certain])
            if text.endswith(REPLACEMENT):  # half a character waits for its rest
                continue
            certain = _cut(text, rows.stop)
            certain = certain[: len(certain) - _num_held(certain, rows.stop)]
            if len(certain) > len(shown):
                yield certain[len(shown) :]
                shown = certain
        rest = _cut(vocabulary.decode(rows.answers[0].finished()), rows.stop)[len(shown) :]
        if rest:
            yield rest


class _Rows:
    """Prompts and their answers so far."""

    def __init__(self, generator: Generator, prompts: Sequence[list[int]], options: Mapping[str, Any]) -> None:
        plan = generator.plan
        chosen = {name: options.get(name, plan[name]) for name in RANGES}
        for name, (kind, is_valid, expected) in RANGES.items():
            value = chosen[name]
            if isinstance(value, bool) or not isinstance(value, kind) or not is_valid(value):
                raise InputError(f"{name}: expected {expected}, got {value!r:.40}")
        self.max_new_tokens = chosen.pop("max_new_tokens")
        self.seed = chosen.pop("seed")
        self.temperature = chosen.pop("temperature")
        self.filter = chosen
        self.stop = options.get("stop", plan.get("stop", []))
        self.stop = [self.stop] if isinstance(self.stop, str) else self.stop
        is_list = isinstance(self.stop, list | tuple)
        if not is_list or any(not isinstance(text, str) or not text for text in self.stop):
            raise InputError(f"stop: expected texts, got {self.stop!r:.40}")
        self.context = plan.get("context_length")
        for prompt in prompts:
            if not prompt:
                raise InputError("the prompt is empty, expected at least one token")
        self.rows = [list(prompt) for prompt in prompts]
        self.starts = [0] * len(prompts)  # the first token of each row that is still in the context
        self.draws = [_draws(self.seed, prompt) for prompt in prompts]
        vocabulary = generator.vocabulary

        def is_stopped(tokens: list[int]) -> bool:
            return vocabulary is not None and any(stop in vocabulary.decode(tokens) for stop in self.stop)

        self.answers = [_Answer(generator.ends, is_stopped if self.stop else None) for _ in prompts]

    def steps(self, forward: Forward) -> Iterator[None]:
        """Adds a token to each row, until all have ended."""
        for _ in range(self.max_new_tokens if self.rows else 0):
            logits = forward(self._inputs())[:, -1]  # (B, V)
            if self.temperature > 0:
                logits = logits.astype(np.float32)
                with np.errstate(over="ignore"):  # a small temperature overflows to -inf
                    logits = (logits - logits.max(axis=-1, keepdims=True)) / np.float32(self.temperature)
                probability = filtered(softmax(logits), **self.filter)
                tokens = pick(probability, np.array([draw.random() for draw in self.draws]))
            else:
                tokens = logits.argmax(axis=-1)
            for row, answer, token in zip(self.rows, self.answers, tokens.tolist(), strict=True):
                row.append(token)  # of rows that have ended too: one step, one place for all
                if answer.goes_on:
                    answer.add(token)
            yield
            if not any(answer.goes_on for answer in self.answers):
                return

    def _inputs(self) -> dict[str, np.ndarray]:
        """Tokens, documents and positions (B, T) of the contexts, padded on the left."""
        for number, row in enumerate(self.rows):
            self.starts[number] += num_left_out(len(row) - self.starts[number], self.context)
        contexts = [row[start:] for row, start in zip(self.rows, self.starts, strict=True)]
        width = max(map(len, contexts))
        tokens = np.array([[0] * (width - len(row)) + row for row in contexts], dtype=np.int64)  # (B, T)
        positions = np.arange(width) - np.array([[width - len(row)] for row in contexts])  # (B, T)
        documents = np.where(positions < 0, PADDING, 0)
        return {"tokens": tokens, "documents": documents, "positions": positions.clip(0)}


class _Answer:
    """The answer to one prompt; finds its end.

    Args:
        ends: tokens that end it, and are not part of it.
        is_stopped: whether tokens contain a text that ends it.
    """

    def __init__(self, ends: list[list[int]], is_stopped: Callable[[list[int]], bool] | None) -> None:
        self.ends = ends
        self.is_stopped = is_stopped
        self.tokens: list[int] = []
        self.num_certain = 0  # tokens that certainly belong to it: no end may begin with them
        self.goes_on = True

    def add(self, token: int) -> None:
        self.tokens.append(token)
        for end in self.ends:
            if self.tokens[-len(end) :] == end:
                del self.tokens[-len(end) :]
                self.goes_on = False
                self._advance(len(self.tokens))
                return
        starts = [end[:length] for end in self.ends for length in range(1, len(end))]
        num_held = max((len(start) for start in starts if self.tokens[-len(start) :] == start), default=0)
        if self._advance(len(self.tokens) - num_held):
            self.goes_on = False
            del self.tokens[self.num_certain :]

    def finished(self) -> list[int]:
        self.num_certain = len(self.tokens)
        return self.tokens

    def _advance(self, end: int) -> bool:
        """Whether a stop text has been generated by now."""
        if end <= self.num_certain:
            return False
        self.num_certain = end
        return self.is_stopped is not None and self.is_stopped(self.tokens[:end])


def num_left_out(num_tokens: int, context_length: int | None) -> int:
    """Number of tokens at the beginning of a row that are not read, as they exceed the context."""
    return 0 if context_length is None or num_tokens <= context_length else num_tokens - max(context_length // 2, 1)


def _draws(seed: int, prompt: list[int]) -> np.random.Generator:
    """Random numbers that depend only on the seed and the prompt."""
    digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop text."""
    return text[: min([text.index(stop) for stop in stops if stop in text], default=len(text))]


def _num_held(text: str, stops: Sequence[str]) -> int:
    """Number of characters at the end that may begin a stop text."""
    return max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def filtered(probability: np.ndarray, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> np.ndarray:
    """Excludes unlikely tokens; the rest keep their proportions, and the most likely one always stays.

    Args:
        probability: (B, V), float32.
        top_k: number of most likely tokens to keep; 0 for all.
        top_p: keep the most likely tokens whose probabilities add up to this share, after top_k.
        min_p: keep tokens with at least this share of the most likely one's probability.
    """
    if not top_k and top_p == 1 and not min_p:
        return probability
    order = np.argsort(-probability, axis=-1, kind="stable")
    ordered = np.take_along_axis(probability, order, axis=-1)
    if top_k:
        ordered[..., top_k:] = 0
    if top_p < 1:
        share = ordered / ordered.sum(axis=-1, keepdims=True)
        before = share.cumsum(axis=-1, dtype=np.float32) - share  # of tokens that are likelier
        before[..., 0] = 0  # whatever its rounding
        ordered[before >= np.float32(top_p)] = 0
    ordered[ordered < np.float32(min_p) * ordered[..., :1]] = 0
    kept = np.zeros_like(probability)
    np.put_along_axis(kept, order, ordered / ordered.sum(axis=-1, keepdims=True), axis=-1)
    return kept


def pick(probability: np.ndarray, number: np.ndarray) -> np.ndarray:
    """The token (B,) at which the cumulative probability (B, V) exceeds a number (B,) in [0, 1)."""
    cumulated = probability.astype(np.float64).cumsum(axis=-1)
    wanted = number * cumulated[:, -1]
    tokens = (cumulated <= wanted[:, None]).sum(axis=-1)
    # a rounded sum may end before the last token that may be drawn
    last = probability.shape[-1] - 1 - (probability[:, ::-1] > 0).argmax(axis=-1)
    return np.minimum(tokens, last)


# of each option: types, whether a value is in range, and that range in words
RANGES: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "max_new_tokens": (int, lambda value: value >= 1, "a whole number of at least 1"),
    "temperature": (int | float, lambda value: 0 <= value < float("inf"), "a number of at least 0"),
    "top_k": (int, lambda value: value >= 0, "a whole number of at least 0"),
    "top_p": (int | float, lambda value: 0 < value <= 1, "a share in (0, 1]"),
    "min_p": (int | float, lambda value: 0 <= value < 1, "a share in [0, 1)"),
    "seed": (int, lambda _: True, "a whole number"),
}
