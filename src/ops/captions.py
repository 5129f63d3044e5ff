"""Captions as tokens of bounded length, and names of classes as captions."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from playbook import UserError
from src.ops.vocabularies import UNKNOWN, Vocabulary


def caption_tokens(vocabulary: Vocabulary, caption: str, context_length: int) -> tuple[list[int], bool]:
    """Tokens of a caption, and whether it was truncated.

    Args:
        vocabulary: a pretrained tokenizer adds its tokens around the caption.
        caption: the text.
        context_length: largest number of tokens.

    Raises:
        UserError: the caption has no token.
    """
    tokens = vocabulary.encode(caption)
    if not tokens:
        raise UserError(f"the caption {caption!r:.40} has no token, expected a word or sign")
    before, behind = getattr(vocabulary, "frame", ([], []))
    room = max(context_length - len(before) - len(behind), 1)
    return [*before, *tokens[:room], *behind], len(tokens) > room


def padded_tokens(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Tokens and mask (B, T), T the longest length; the mask is False for padding behind a row."""
    tokens = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # (B, T)
    lengths = torch.tensor([len(row) for row in rows])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


def label_captions(vocabulary: Vocabulary, labels: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Captions of all labels, one for each template in turn: label 0 with every template, then label 1.

    Args:
        vocabulary: of the training captions.
        labels: names of classes.
        templates: captions with {} in place of the name.

    Raises:
        UserError: a label has only words that the vocabulary does not know, so nothing would tell it from others.
    """
    unknown = vocabulary.special.get(UNKNOWN)
    for label in labels:
        tokens = vocabulary.encode(label)
        if unknown is not None and all(token == unknown for token in tokens):
            raise UserError(f"--model.labels: {label} is unknown: no caption of the training has such a word")
    return [template.replace("{}", label) for label in labels for template in templates]
