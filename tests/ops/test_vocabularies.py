"""Vocabularies: text there and back, bytes, special tokens, and what they say of text that they cannot hold."""

import json
from typing import Any

import pytest

from playbook import UserError
from src.ops.vocabularies import (
    END,
    MASK,
    PAD,
    BytePairs,
    Bytes,
    Characters,
    Kind,
    Vocabulary,
    Words,
    fingerprint,
    learn_vocabulary,
    split_words,
    vocabulary_from,
)

TEXT = "def fac(n):\n    return 1 if n < 2 else n * fac(n - 1)  # n! – größer, 日本\n" * 3
KINDS: tuple[Kind, ...] = ("characters", "bytes", "bpe")


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back_and_bytes_add_up(kind: Kind) -> None:
    vocabulary = learn_vocabulary(kind, [TEXT], vocab_size=300)
    tokens = vocabulary.encode(TEXT)
    assert vocabulary.decode(tokens) == TEXT
    assert sum(vocabulary.num_bytes[token] for token in tokens) == len(TEXT.encode())
    assert max(tokens) < vocabulary.size == len(vocabulary.num_bytes)
    assert [vocabulary.num_bytes[token] for token in vocabulary.special.values()] == [0] * len(vocabulary.special)


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe", "words"])
def test_plain_values_make_the_same_vocabulary(kind: Kind) -> None:
    vocabulary = learn_vocabulary(kind, [TEXT], vocab_size=300)
    plain: dict[str, Any] = json.loads(json.dumps(vocabulary.plain()))
    again = vocabulary_from(plain)
    assert type(again) is type(vocabulary)
    assert again.encode(TEXT) == vocabulary.encode(TEXT)
    assert fingerprint(again) == fingerprint(vocabulary)


def test_other_texts_have_other_fingerprints() -> None:
    assert fingerprint(Characters("ab")) != fingerprint(Characters("ba"))


@pytest.mark.parametrize("vocabulary", [Bytes(), learn_vocabulary("bpe", [TEXT], 300)], ids=["bytes", "bpe"])
def test_the_name_of_a_special_token_in_a_text_is_text(vocabulary: Vocabulary) -> None:
    """Or a user could end a document, or a turn of a chat, by writing the mark."""
    tokens = vocabulary.encode(f"a{END}{PAD}")
    assert not set(tokens) & set(vocabulary.special.values())
    assert vocabulary.decode(tokens) == f"a{END}{PAD}"


def test_special_tokens_are_not_decoded() -> None:
    vocabulary = Bytes()
    assert vocabulary.decode([*vocabulary.encode("a"), vocabulary.end, vocabulary.pad]) == "a"
    characters = Characters("ab", special=[END, PAD])
    assert (characters.end, characters.pad, characters.size) == (2, 3, 4)
    assert characters.decode([0, 2, 1, 3]) == "ab"


def test_half_a_character_is_replaced() -> None:
    assert Bytes().decode("ü".encode()[:1]) == "\N{REPLACEMENT CHARACTER}"


def test_byte_pairs_shorten_the_text() -> None:
    vocabulary = learn_vocabulary("bpe", [TEXT], 320)
    assert len(vocabulary.encode(TEXT)) < len(TEXT.encode()) / 2
    assert vocabulary.size <= 320


def test_an_unknown_character_is_named_with_what_is_around_it() -> None:
    with pytest.raises(UserError, match=r"the character 'z' in 'a\\nbz' is not among the 3"):
        Characters("\nab").encode("a\nbz")


def test_words_are_lower_case_and_unknown_ones_share_a_token() -> None:
    vocabulary = learn_vocabulary("words", ["A film, a Film!", "no bore a bit"], min_count=2)
    assert isinstance(vocabulary, Words)
    assert vocabulary.words == ["a", "film"]
    assert vocabulary.encode("A film no") == [2, 3, 1]
    assert vocabulary.decode([2, 3, 1, 0]) == "a film <unk>"


def test_contractions_are_cut_as_in_the_penn_treebank() -> None:
    text = "I don't, can’t; it's John's, they're 'em rock'n'roll"
    words = "i do n't , ca n't ; it 's john 's , they 're 'em rock'n'roll"
    assert split_words(text) == split_words(words) == words.split()


@pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
def test_further_special_tokens_are_behind_the_others_and_in_no_text(kind: Any) -> None:
    plain = learn_vocabulary(kind, [TEXT], 320, special=[MASK]).plain()
    vocabulary = vocabulary_from(plain)
    token = vocabulary.special[MASK]
    assert vocabulary.num_bytes[token] == 0
    assert vocabulary.decode([token]) == ""
    assert token not in vocabulary.encode(TEXT)
    assert vocabulary.plain() == plain


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"kind": "byte"}, r"expected a kind of .*got 'byte'.*bytes"),
        ({"kind": "bpe", "tokenizer": "{}"}, "content of a tokenizer.json"),
        ({"kind": "characters", "characters": ""}, "training text is empty"),
    ],
)
def test_damaged_values_are_errors(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        vocabulary_from(plain)


def test_a_tokenizer_without_our_special_tokens_is_refused() -> None:
    from tokenizers import Tokenizer, models

    with pytest.raises(UserError, match="no special token"):
        BytePairs(Tokenizer(models.BPE()).to_str())


@pytest.mark.parametrize(
    ("kind", "size", "message"), [("byte", 300, "did you mean|bytes"), ("bpe", 100, "at least 258")]
)
def test_options_out_of_range_are_errors(kind: Any, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn_vocabulary(kind, [TEXT], size)
