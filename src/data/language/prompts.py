"""Prompts for a language model: reading one from an input, and batching prompts of any lengths."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from playbook import UserError, decode_text

PADDING = -1  # as a document
IGNORED = -100  # as a target: does not count in the loss


def text_of(source: Any, columns: Sequence[str], encoding: str = "") -> str:
    """The text of one raw input.

    Args:
        source: a text, a row that has one of the columns, or the path or the bytes of a file.
        columns: names of the columns of texts; the first one that the row has is used.
        encoding: of a file, if the data has an option for it. Defaults to UTF-8.

    Raises:
        UserError: there is no such column, no text in it, or the file is not text.
    """
    if isinstance(source, dict):
        column = next((column for column in columns if column in source), None)
        if column is None:
            raise UserError(f"expected a column {' or '.join(columns)}, got {', '.join(source) or 'none'}")
        text = source[column]
        if not isinstance(text, str):
            raise UserError(f"{column}: expected text, got {text!r:.80}")
        return text
    if isinstance(source, str):
        return source
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    place = "standard input" if isinstance(source, bytes) else Path(source).as_posix()
    return decode_text(content, place, encoding or "utf-8", "--data.encoding" if encoding else "", numbers_line=False)


def as_prompt(tokens: Sequence[int]) -> dict[str, Tensor]:
    """The inputs of one prompt, `tokens` (T,); it may be longer than the context.

    Raises:
        UserError: it is empty.
    """
    if not tokens:
        raise UserError("the prompt is empty, expected at least one token")
    return {"tokens": torch.tensor(tokens)}


def collate(samples: list[tuple[dict[str, Tensor], Any]]) -> Any:
    """Makes a batch; rows of different length are padded, prompts on the left and training rows on the right.

    Returns:
        `tokens` (B, T); with packing, and with padding on the left, also `documents` (B, T), -1 for padding, and
        `positions` (B, T), which begin at 0 in each document; and the targets, -100 for padding.
    """
    lengths = torch.tensor([len(inputs["tokens"]) for inputs, _ in samples])
    if (lengths == lengths[0]).all():
        return default_collate(samples)
    width = int(lengths.max())
    if isinstance(samples[0][1], Tensor):
        fill = {"tokens": 0, "documents": PADDING, "positions": 0}
        inputs = {
            name: pad_sequence([inputs[name] for inputs, _ in samples], True, fill[name]) for name in samples[0][0]
        }
        return inputs, pad_sequence([target for _, target in samples], True, IGNORED)
    rows = [inputs["tokens"].flip(0) for inputs, _ in samples]
    tokens = pad_sequence(rows, batch_first=True).flip(1)  # (B, T)
    positions = torch.arange(width) - (width - lengths)[:, None]  # (B, T)
    documents = torch.where(positions < 0, PADDING, 0)
    inputs = {"tokens": tokens, "documents": documents, "positions": positions.clamp(min=0)}
    return inputs, default_collate([target for _, target in samples])
