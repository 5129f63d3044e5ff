"""Vocabularies map text to token numbers and back. Their plain values are saved in a run's facts."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from playbook import UserError, nearest
from src.ops.hub import local_folder

Kind = Literal["characters", "bytes", "bpe", "words"]
END = "<|end|>"  # between documents, and after each turn of a chat
PAD = "<|pad|>"
UNKNOWN = "<unk>"  # of words
MASK = "<mask>"  # in place of a token that is to be predicted
SPLIT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


class Vocabulary(Protocol):
    """Interface of a vocabulary."""

    @property
    def size(self) -> int:
        """Number of tokens V."""
        ...

    @property
    def num_bytes(self) -> list[int]:
        """Bytes of text in UTF-8 that each of the V tokens stands for; 0 for special ones."""
        ...

    @property
    def end(self) -> int | None:
        """Token between documents, or None."""
        ...

    @property
    def pad(self) -> int:
        """Token that pads rows; it is masked."""
        ...

    @property
    def special(self) -> Mapping[str, int]:
        """Numbers of the special tokens by name."""
        ...

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; names of special tokens in it are treated as text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without the special ones."""
        ...

    def plain(self) -> dict[str, Any]:
        """Plain values from which `vocabulary_from` rebuilds the vocabulary."""
        ...


def vocabulary_from(plain: Mapping[str, Any]) -> Vocabulary:
    """Rebuilds a vocabulary from its plain values.

    Args:
        plain: returned by `plain`.

    Raises:
        UserError: the kind is unknown.
    """
    kinds: dict[Any, Any] = {
        "characters": Characters,
        "bytes": Bytes,
        "bpe": BytePairs,
        "words": Words,
        "huggingface": Pretrained,
    }
    values = dict(plain)
    kind = values.pop("kind", None)
    if kind not in kinds:
        raise UserError(f"tokenizer: expected a kind of {', '.join(kinds)}, got {kind!r}{nearest(str(kind), kinds)}")
    return kinds[kind](**values)


def vocabulary_of(name: str, option: str) -> "Vocabulary":
    """The vocabulary that a name means.

    Args:
        name: run directory or checkpoint of a model that was trained on texts here, or directory or name of a model of
            Hugging Face.
        option: what the user calls the name, for messages.

    Raises:
        UserError: there is no such thing, or it knows no vocabulary.
    """
    path = Path(name).expanduser()
    if not (path.is_file() or (path / "checkpoints").is_dir()):
        return Pretrained(name, option=option)
    from playbook import load_run  # brings torch, which the processes that write tokens do not need

    facts = load_run(name, option).facts
    if "tokenizer" not in facts:
        raise UserError(f"{option} {name}: knows no vocabulary; expected a run that was trained on texts")
    return vocabulary_from(facts["tokenizer"])


def found_again(plain: Mapping[str, Any], name: str | None, option: str) -> dict[str, Any]:
    """Plain values of a vocabulary, with the place where a pretrained tokenizer lies now.

    Args:
        plain: of a checkpoint.
        name: what the user's option says; None leaves the checkpoint's.
        option: what the user calls the name, for messages.

    Raises:
        UserError: another tokenizer lies there.
    """
    if name is None or plain["kind"] != "huggingface":
        return dict(plain)
    return Pretrained(name, plain["digest"], option).plain()


def standalone(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values that hold all of a vocabulary, for exported models: a pretrained tokenizer's own, not its name.

    Args:
        plain: returned by `plain`.
    """
    if plain["kind"] != "huggingface":
        return dict(plain)
    vocabulary = vocabulary_from(plain)
    assert isinstance(vocabulary, Pretrained), plain["kind"]
    return {"kind": "huggingface", "tokenizer": vocabulary.content, "end": vocabulary.end}


def learn_vocabulary(
    kind: Kind, texts: Iterable[str], vocab_size: int = 4096, min_count: int = 1, special: Sequence[str] = ()
) -> Vocabulary:
    """Makes a vocabulary for training texts.

    Args:
        kind: characters, bytes, bpe or words.
        texts: the training texts; read once.
        vocab_size: largest number of tokens, special ones included, for bpe and words; bpe has at least 256 + 2.
        min_count: how often a word must occur to have a token of its own.
        special: names of further special tokens; bytes have none.
    """
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        return Characters("".join(sorted(set().union(*texts))), special)
    if kind == "bpe":
        return learn_byte_pairs(texts, vocab_size, special)
    if kind == "words":
        counts = Counter(word for text in texts for word in split_words(text))
        most_common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: vocab_size - 2 - len(special)]
        return Words([word for word, count in most_common if count >= min_count], special)
    kinds = ("characters", "bytes", "bpe", "words")
    raise ValueError(f"vocabulary: expected one of {', '.join(kinds)}, got {kind!r}{nearest(kind, kinds)}")


def fingerprint(vocabulary: Vocabulary) -> str:
    """Identifies a vocabulary: the first 16 hexadecimal digits of a SHA-256 of its plain values."""
    return hashlib.sha256(json.dumps(vocabulary.plain(), sort_keys=True).encode()).hexdigest()[:16]


def describe(vocabulary: Vocabulary) -> str:
    """A short description for messages, such as `65 characters`."""
    return f"{vocabulary.size:,} {vocabulary.plain()['kind']} ({fingerprint(vocabulary)})"


def check_vocab_size(kind: Kind, vocab_size: int, special: Sequence[str] = ()) -> None:
    """Looks whether a vocabulary of a kind may have so few tokens.

    Raises:
        ValueError: it may not.
    """
    least = {"bpe": 258, "words": 3}.get(kind, 0) + len(special)
    if vocab_size < least:
        raise ValueError(f"vocab_size: expected at least {least} for {kind}, got {vocab_size}")


class Characters:
    """A token for each character of the training text, then the special tokens.

    Args:
        characters: all characters, in the order of their tokens.
        special: names of special tokens, after the characters. Defaults to none, as plain text needs none.

    Raises:
        UserError: on encoding, a character that has no token.
    """

    def __init__(self, characters: str, special: Sequence[str] = ()) -> None:
        if not characters:
            raise UserError("vocabulary: the training text is empty, expected at least one character")
        self.characters = characters
        self.special = {name: len(characters) + place for place, name in enumerate(special)}
        self.size = len(characters) + len(special)
        self.num_bytes = [len(character.encode()) for character in characters] + [0] * len(special)
        self.end = self.special.get(END)
        self.pad = self.special.get(PAD, 0)
        self._tokens = {character: token for token, character in enumerate(characters)}

    def encode(self, text: str) -> list[int]:
        try:
            return [self._tokens[character] for character in text]
        except KeyError as error:
            place = text.index(error.args[0])
            raise UserError(
                f"vocabulary: the character {error.args[0]!r} in {text[max(0, place - 20) : place + 20]!r} "
                f"is not among the {len(self.characters)} of the training text; expected vocabulary bytes or bpe"
            ) from None

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.characters[token] for token in tokens if 0 <= token < len(self.characters))

    def plain(self) -> dict[str, Any]:
        return {"kind": "characters", "characters": self.characters, "special": list(self.special)}


class Bytes:
    """The 256 bytes of UTF-8, then the special tokens."""

    special: Mapping[str, int] = {END: 256, PAD: 257}
    size = 258
    num_bytes = [1] * 256 + [0, 0]  # never changed
    end = 256
    pad = 257

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if 0 <= token < 256).decode(errors="replace")

    def plain(self) -> dict[str, Any]:
        return {"kind": "bytes"}


class BytePairs:
    """Byte-pair encoding of bytes (Sennrich et al. 2016, Radford et al. 2019), by Hugging Face's `tokenizers`.

    Args:
        tokenizer: content of a tokenizer.json, with the special tokens <|end|> and <|pad|>.

    Raises:
        UserError: it is not a tokenizer of bytes, or lacks these special tokens.
    """

    def __init__(self, tokenizer: str) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the library raises no type of its own
            raise UserError(f"tokenizer: expected the content of a tokenizer.json: {error}") from error
        self._text = tokenizer
        tokens = self._tokenizer.get_added_tokens_decoder()
        self.special = {token.content: number for number, token in tokens.items()}
        if missing := [name for name in (END, PAD) if name not in self.special]:
            raise UserError(f"tokenizer: has no special token {missing[0]}; train one with vocabulary bpe")
        self.size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.end: int | None = self.special[END]
        self.pad = self.special[PAD]
        # of a byte-level tokenizer, where a character of a token's name stands for one byte
        names = (self._tokenizer.id_to_token(token) or "" for token in range(self.size))
        self.num_bytes = [0 if name in self.special else len(name) for name in names]
        # or the tokenizer would take the name of a special token in a text for the token
        self._tokenizer.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    def plain(self) -> dict[str, Any]:
        return {"kind": "bpe", "tokenizer": self._text}


def learn_byte_pairs(texts: Iterable[str], vocab_size: int, special: Sequence[str] = ()) -> BytePairs:
    """Trains a byte-pair encoding.

    Args:
        texts: texts to learn from.
        vocab_size: largest number of tokens, the 256 bytes and special ones included.
        special: names of special tokens besides <|end|> and <|pad|>.

    Raises:
        ValueError: vocab_size is too small.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    check_vocab_size("bpe", vocab_size, special)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, PAD, *special],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return BytePairs(tokenizer.to_str())


class Pretrained:
    """The tokenizer of a pretrained model, by Hugging Face's transformers; a checkpoint holds its name and digest.

    Args:
        name: directory written by `save_pretrained`, or name of a repository of the hub, which is downloaded once.
        digest: 16 hexadecimal digits that identify the tokenizer. Defaults to its own, without a check.
        option: name of the option, for messages.

    Raises:
        UserError: there is no such tokenizer, it cannot be downloaded, or its digest differs.
    """

    def __init__(self, name: str, digest: str | None = None, option: str = "tokenizer") -> None:
        folder = local_folder(name, option, tokenizer_alone=True)
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise UserError(f"{option} {name}: needs transformers: uv sync --extra huggingface") from error
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{option} {name}: contains no tokenizer: {str(error).splitlines()[0]}") from None
        if not self.tokenizer.is_fast:
            raise UserError(f"{option} {name}: expected a tokenizer with a tokenizer.json")
        self.name = name
        self.content: str = self.tokenizer.backend_tokenizer.to_str()  # of a tokenizer.json
        self.digest = hashlib.sha256(self.content.encode()).hexdigest()[:16]
        if digest is not None and digest != self.digest:
            raise UserError(
                f"{option} {name}: its tokenizer ({self.digest}) differs from the checkpoint's ({digest}); "
                "expected the tokenizer used in training"
            )
        self.size = len(self.tokenizer)
        tokens = self.tokenizer.added_tokens_decoder
        self.special = {token.content: number for number, token in tokens.items() if token.special}
        self.end: int | None = self.tokenizer.eos_token_id
        self.pad: int = next((t for t in (self.tokenizer.pad_token_id, self.end) if t is not None), 0)
        framed, bare = (self.tokenizer("a", add_special_tokens=adds)["input_ids"] for adds in (True, False))
        first = next(place for place in range(len(framed)) if framed[place : place + len(bare)] == bare)
        # tokens that belong around a text as a whole, such as [CLS] and [SEP]; `encode` leaves them out
        self.frame: tuple[list[int], list[int]] = framed[:first], framed[first + len(bare) :]
        is_bytes = '"ByteLevel"' in self.content
        names = self.tokenizer.convert_ids_to_tokens(list(range(self.size)))
        self.num_bytes = [0 if name is None or name in self.special else _num_bytes(name, is_bytes) for name in names]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def plain(self) -> dict[str, Any]:
        return {"kind": "huggingface", "name": self.name, "digest": self.digest}


def _num_bytes(token: str, is_bytes: bool) -> int:
    """Bytes of the text that a token of a pretrained tokenizer stands for."""
    if is_bytes:  # a character of its name stands for one byte
        return len(token)
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        return 1
    return len(token.removeprefix("##").replace("▁", " ").encode())


class Words:
    """A token for each lower-case word or punctuation mark, and one for unknown words; for classification.

    Args:
        words: words with a token of their own.
        special: names of further special tokens, after the words.
    """

    end = None
    pad = 0

    def __init__(self, words: Sequence[str], special: Sequence[str] = ()) -> None:
        self.words = list(words)
        self.further = {name: len(words) + 2 + place for place, name in enumerate(special)}
        self.special = {PAD: 0, UNKNOWN: 1, **self.further}
        self.size = len(words) + 2 + len(special)
        self.num_bytes = [0, 0, *(len(word.encode()) for word in words), *[0] * len(special)]
        self._tokens = {word: token for token, word in enumerate(words, start=2)}

    def encode(self, text: str) -> list[int]:
        return [self._tokens.get(word, 1) for word in split_words(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        known = (token for token in tokens if 0 < token < len(self.words) + 2)
        return " ".join(UNKNOWN if token == 1 else self.words[token - 2] for token in known)

    def plain(self) -> dict[str, Any]:
        further = {"special": list(self.further)} if self.further else {}
        return {"kind": "words", "words": self.words, **further}


def split_words(text: str) -> list[str]:
    """Lower-case words, numbers and punctuation; contractions are split as in the Penn Treebank: do n't."""
    text = re.sub(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b", r" \1", text.lower().replace("’", "'"))
    return re.findall(r"n't\b|\w+(?:'\w+)*|'\w+|[^\w\s]", text)
