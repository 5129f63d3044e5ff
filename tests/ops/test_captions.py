"""Captions as tokens, and labels as captions."""

import pytest

from playbook import UserError
from src.ops.captions import caption_tokens, label_captions, padded_tokens
from src.ops.vocabularies import Bytes, Words

WORDS = Words(["a", "red", "rose"])


def test_longer_captions_are_truncated() -> None:
    assert caption_tokens(WORDS, "a red rose", 3) == ([2, 3, 4], False)
    assert caption_tokens(WORDS, "a red rose", 2) == ([2, 3], True)


def test_the_frame_of_a_pretrained_tokenizer_stays() -> None:
    framed = Words(["a", "red", "rose"])
    framed.frame = ([90], [91])  # type: ignore[attr-defined]  # as Pretrained has
    assert caption_tokens(framed, "a red rose", 4) == ([90, 2, 3, 91], True)


def test_padding_is_masked() -> None:
    tokens, mask = padded_tokens([[5, 6, 7], [8]])
    assert tokens.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.tolist() == [[True, True, True], [True, False, False]]


def test_every_label_has_all_templates() -> None:
    captions = label_captions(Bytes(), ["rose", "oak"], ["a {}", "{} and {}"])
    assert captions == ["a rose", "rose and rose", "a oak", "oak and oak"]


def test_unknown_labels_and_empty_captions_are_told() -> None:
    with pytest.raises(UserError, match=r"--model\.labels: daisy is unknown: no caption of the training has such"):
        label_captions(WORDS, ["rose", "daisy"], ["a {}"])
    with pytest.raises(UserError, match="the caption '  ' has no token"):
        caption_tokens(WORDS, "  ", 4)
