"""Vocabularies map text to token numbers and back; they equal those of the training."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .errors import InputError

END = "<|end|>"  # between documents, and after each turn of a chat
PAD = "<|pad|>"
UNKNOWN = "<unk>"  # of words


class Vocabulary(Protocol):
    """Interface of a vocabulary."""

    @property
    def size(self) -> int:
        """Number of tokens."""
        ...

    @property
    def special(self) -> Mapping[str, int]:
        """Numbers of the special tokens by name."""
        ...

    @property
    def end(self) -> int | None:
        """Token between documents, or None."""
        ...

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; names of special tokens in it are treated as text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without the special ones."""
        ...


def load_vocabulary(plain: Mapping[str, Any]) -> Vocabulary:
    """Builds a vocabulary from the manifest's plain values.

    Raises:
        ValueError: its kind is unknown, or the package tokenizers is missing.
    """
    kinds: dict[Any, Any] = {
        "characters": _Characters,
        "bytes": _Bytes,
        "words": _Words,
        "bpe": _Tokenizer,
        "huggingface": _Tokenizer,
    }
    if plain.get("kind") not in kinds:
        raise ValueError(f"tokenizer: expected a kind of {', '.join(kinds)}, got {plain.get('kind')!r}")
    return kinds[plain["kind"]](plain)


class _Characters:
    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.characters: str = plain["characters"]
        self.special = {name: len(self.characters) + place for place, name in enumerate(plain.get("special", ()))}
        self.size = len(self.characters) + len(self.special)
        self.end = self.special.get(END)
        self._tokens = {character: token for token, character in enumerate(self.characters)}

    def encode(self, text: str) -> list[int]:
        try:
            return [self._tokens[character] for character in text]
        except KeyError as error:
            place = text.index(error.args[0])
            around = text[max(0, place - 20) : place + 20]
            raise InputError(f"the model knows no character {error.args[0]!r}, as in {around!r}") from None

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.characters[token] for token in tokens if 0 <= token < len(self.characters))


class _Bytes:
    special: Mapping[str, int] = {END: 256, PAD: 257}
    size = 258
    end = 256

    def __init__(self, plain: Mapping[str, Any]) -> None:
        pass

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if 0 <= token < 256).decode(errors="replace")


class _Words:
    end = None

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self.words: list[str] = plain["words"]
        further = {name: len(self.words) + 2 + place for place, name in enumerate(plain.get("special", ()))}
        self.special = {PAD: 0, UNKNOWN: 1, **further}
        self.size = len(self.words) + len(self.special)
        self._tokens = {word: token for token, word in enumerate(self.words, start=2)}

    def encode(self, text: str) -> list[int]:
        return [self._tokens.get(word, 1) for word in split_words(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        known = (token for token in tokens if 0 < token < len(self.words) + 2)
        return " ".join(UNKNOWN if token == 1 else self.words[token - 2] for token in known)


class _Tokenizer:
    """A tokenizer.json: of byte pairs trained here, or of Hugging Face."""

    def __init__(self, plain: Mapping[str, Any]) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ValueError(f"the model's texts need the package tokenizers: {error}") from error
        self._tokenizer = Tokenizer.from_str(plain["tokenizer"])
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # or the name of a special token in a text would become the token
        self._tokenizer.encode_special_tokens = True
        tokens = self._tokenizer.get_added_tokens_decoder()
        is_own = plain["kind"] == "bpe"
        self.special = {token.content: number for number, token in tokens.items() if is_own or token.special}
        self.size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.end: int | None = self.special[END] if is_own else plain.get("end")

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


def split_words(text: str) -> list[str]:
    """Lower-case words, numbers and punctuation; contractions are split as in the Penn Treebank: do n't."""
    text = re.sub(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b", r" \1", text.lower().replace("’", "'"))
    return re.findall(r"n't\b|\w+(?:'\w+)*|'\w+|[^\w\s]", text)
