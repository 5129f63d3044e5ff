"""Samples of a language model, cut from one long array of tokens or from a file of them."""

from typing import Protocol

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

    def __getitem__(self, places: slice, /) -> np.ndarray: ...


class Starts(Dataset):
    """Starts of consecutive windows of T tokens; a training window begins up to T tokens later."""

    def __init__(self, num_tokens: int, context_length: int) -> None:
        self.starts = range(0, num_tokens - context_length, context_length)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> int:
        return self.starts[index]


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
