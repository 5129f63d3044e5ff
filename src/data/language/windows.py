"""Samples of a language model, cut from one long array of tokens or from a file of them."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.data.language.packing import pack
from src.data.language.prompts import IGNORED, PADDING

NUM_PROMPTS = 8  # that `predict` continues without --input
BLOCK = 2**22  # tokens of a file that are read at a time


class Tokens(Protocol):
    """Tokens (N,), in memory or in a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: slice | np.ndarray, /) -> np.ndarray: ...


class ShiftedWindows(Dataset):
    """Training windows of T tokens, each of which begins at random, up to T - 1 tokens behind its place in the text.

    Where a window begins depends only on (seed, epoch, draw). A batch is cut at once: 64 windows of 256 tokens take
    0.4 ms; one by one, each with seeded generators, they took 16 (benchmarks/LOG.md).

    Args:
        tokens: (N,), N above T.
        context_length: tokens of a window, T.
    """

    def __init__(self, tokens: Tokens, context_length: int) -> None:
        self.tokens = tokens
        self.context_length = context_length
        self.starts = range(0, len(tokens) - context_length, context_length)
        self.seed = 0  # of the training

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, key: Any) -> tuple[dict[str, Tensor], Tensor]:
        inputs, target = self.__getitems__([key])
        return {"tokens": inputs["tokens"][0]}, target[0]

    def __getitems__(self, keys: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
        # overfit_batches brings a sampler of plain indices
        rows = [key if isinstance(key, tuple) else (0, key, key) for key in keys]
        epochs, indices, draws = np.array(rows, np.uint64).T  # (B,) each
        numbers = _mixed(_mixed(_mixed(np.full_like(epochs, self.seed)) + epochs) + draws)
        length = self.context_length
        starts = (indices * np.uint64(length) + numbers % np.uint64(length)).astype(np.int64)
        starts = np.minimum(starts, len(self.tokens) - length - 1)
        places = starts[:, None] + np.arange(length + 1)
        window = torch.from_numpy(self.tokens[places].astype(np.int64))  # (B, T + 1)
        return {"tokens": window[:, :-1].contiguous()}, window[:, 1:].contiguous()


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Random numbers (B,) of 64 bits, a function of the given ones: splitmix64 (Steele et al. 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Windows(Dataset):
    """All tokens after the first, each predicted once, in consecutive windows.

    Args:
        tokens: (N,).
        context_length: tokens of a window, T.
        pad: token that fills the last window after the end of the text.
    """

    def __init__(self, tokens: Tokens, context_length: int, pad: int) -> None:
        self.tokens = tokens
        self.context_length = context_length
        self.pad = pad
        self.starts = range(0, len(tokens) - 1, context_length)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        start, length = self.starts[index], self.context_length
        window = torch.from_numpy(self.tokens[start : start + length + 1].astype(np.int64))  # (up to T + 1,)
        tokens, target = torch.full((length,), self.pad), torch.full((length,), IGNORED)
        tokens[: len(window) - 1], target[: len(window) - 1] = window[:-1], window[1:]
        return {"tokens": tokens}, target


class Packed(Dataset):
    """Rows of T tokens with several documents each, without attention between them.

    Every token but the first of each document is predicted once, its end included. Documents of more than T + 1 tokens
    are cut into pieces of T tokens, without attention between the pieces either.

    Args:
        tokens: (N,), each document with its end.
        end: token at the end of a document.
        context_length: tokens of a row, T.
        pad: token that fills rows.
    """

    def __init__(self, tokens: Tokens, end: int, context_length: int, pad: int) -> None:
        self.tokens = tokens
        self.context_length = context_length
        self.pad = pad
        ends = document_ends(tokens, end)
        first = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        places = ends - first  # of each document: the number of its tokens that have a next one
        num_pieces = -(-places // context_length)
        self.num_cut = int((num_pieces > 1).sum())
        self.num_empty = int((num_pieces == 0).sum())
        document = np.repeat(np.arange(len(ends)), num_pieces)
        number = np.arange(len(document)) - np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
        starts = first[document] + number * context_length
        lengths = np.minimum(ends[document] - starts, context_length)
        rows = pack(lengths, context_length)
        order = np.array([piece for row in rows for piece in row], dtype=np.int64)
        self._starts, self._lengths = starts[order], lengths[order]  # (P,), pieces in the order of their rows
        self._offsets = np.cumsum([0, *map(len, rows)])  # (R + 1,)
        self.starts = self._starts[self._offsets[:-1]].tolist()

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        size = self.context_length
        tokens, target = torch.full((size,), self.pad), torch.full((size,), IGNORED)
        documents, positions = torch.full((size,), PADDING), torch.zeros(size, dtype=torch.int64)
        at = 0
        for number, piece in enumerate(range(self._offsets[index], self._offsets[index + 1])):
            start, length = int(self._starts[piece]), int(self._lengths[piece])
            text = torch.from_numpy(self.tokens[start : start + length + 1].astype(np.int64))  # (length + 1,)
            places = slice(at, at + length)
            tokens[places], target[places] = text[:-1], text[1:]
            documents[places], positions[places] = number, torch.arange(length)
            at += length
        return {"tokens": tokens, "documents": documents, "positions": positions}, target


def document_ends(tokens: Tokens, end: int) -> np.ndarray:
    """Positions (D,) of the ends of all documents, without loading all tokens."""
    blocks = range(0, len(tokens), BLOCK)
    ends = [np.flatnonzero(tokens[start : start + BLOCK] == end) + start for start in blocks]
    return np.concatenate(ends) if ends else np.empty(0, np.int64)


class Prompts(Dataset):
    """The first tokens of windows that are spread evenly over the text."""

    def __init__(self, windows: Windows, length: int) -> None:
        step = max(len(windows) // NUM_PROMPTS, 1)
        self.windows = windows
        self.length = length
        self.indices = range(0, len(windows), step)[:NUM_PROMPTS]
        self.starts = [windows.starts[index] for index in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        inputs, _ = self.windows[self.indices[index]]
        return {"tokens": inputs["tokens"][: self.length]}, -1
