"""Pairs of a picture and a caption: their captions as tokens, and the data set and batches that they make."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from playbook import Data, UserError, split_indices
from src.data.multimodal.pictures import PictureReader
from src.data.notices import refuse, warn
from src.ops.captions import caption_tokens
from src.ops.vocabularies import (
    Kind,
    check_vocab_size,
    describe,
    found_again,
    learn_vocabulary,
    vocabulary_from,
    vocabulary_of,
)

KINDS: tuple[Kind, ...] = ("words", "characters", "bytes", "bpe")
UNKNOWN = -1  # number of the image and of the caption of an unlabelled sample
Inputs = dict[str, Tensor]


class Pair(NamedTuple):
    """A picture and one of its captions.

    Args:
        image: where the picture is: a path, or a member of a shard.
        caption: its text.
        name: of the sample, in tables.
        number: of the picture, by `number_of`; samples of one picture have the same, others have not.
    """

    image: Any
    caption: str
    name: str
    number: int


def collate(samples: Sequence[tuple[Inputs, Tensor]]) -> tuple[Inputs, Tensor]:
    """Makes a batch: image (B, C, S, S), tokens and mask (B, T) if there are captions, and numbers (B, 2)."""
    batch = {"image": torch.stack([inputs["image"] for inputs, _ in samples])}
    for name in ("tokens", "mask"):
        if name in samples[0][0]:
            batch[name] = pad_sequence([inputs[name] for inputs, _ in samples], batch_first=True)
    return batch, torch.stack([numbers for _, numbers in samples])


def unlabelled(image: Tensor) -> tuple[Inputs, Tensor]:
    """The sample of an image without a caption."""
    return {"image": image}, torch.tensor([UNKNOWN, UNKNOWN])


class Captions:
    """Turns captions into tokens of a vocabulary, which is among the facts of the data.

    Args:
        vocabulary: words, characters, bytes or bpe.
        vocab_size: largest number of tokens.
        min_count: how often a word must occur to have a token of its own.
        vocabulary_of: run or pretrained model whose vocabulary to use.
        context_length: largest number of tokens of a caption.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self, vocabulary: Kind, vocab_size: int, min_count: int, vocabulary_of: str | None, context_length: int
    ) -> None:
        if vocabulary not in KINDS:
            raise ValueError(f"vocabulary: expected one of {', '.join(KINDS)}, got {vocabulary}")
        check_vocab_size(vocabulary, vocab_size)
        if min_count < 1:
            raise ValueError(f"min_count: expected at least 1, got {min_count}")
        if context_length < 1:
            raise ValueError(f"context_length: expected at least 1 token, got {context_length}")
        self.kind: Kind = vocabulary
        self.vocab_size = vocab_size
        self.min_count = min_count
        self.source = vocabulary_of
        self.context_length = context_length
        self.truncated: list[str] = []  # names of samples with longer captions

    def find_again(self, facts: dict[str, Any]) -> None:
        """Brings the place of a pretrained tokenizer in the facts up to date."""
        if "tokenizer" in facts:
            facts["tokenizer"] = found_again(facts["tokenizer"], self.source, "--data.vocabulary_of")

    def learn(self, facts: dict[str, Any], captions: Iterable[str]) -> None:
        """Takes the vocabulary of a checkpoint, that of another run, or learns one of the training captions."""
        known = facts.get("tokenizer")
        if known is None and self.source is not None:
            known = vocabulary_of(self.source, "--data.vocabulary_of").plain()
        if known is None:
            known = learn_vocabulary(self.kind, captions, self.vocab_size, self.min_count).plain()
        vocabulary = vocabulary_from(known)
        if known["kind"] not in (self.kind, "huggingface"):
            has = describe(vocabulary)
            raise UserError(f"--data.vocabulary {self.kind}: the checkpoint has {has}; expected {known['kind']}")
        facts |= {"tokenizer": known, "vocab_size": vocabulary.size, "context_length": self.context_length}

    def encoded(
        self, data: Data, pairs: Sequence[Pair], load: Callable[[Any], Any], prepare: Callable[[Any], Tensor] | None
    ) -> "Pairs":
        """The data set of some pairs.

        Args:
            data: that has the pairs.
            pairs: of one split.
            load: reads the picture of a pair.
            prepare: makes it a tensor; None leaves that to `augment`.

        Raises:
            UserError: a caption has no token, and `on_error` is stop.
        """
        vocabulary = vocabulary_from(data.facts["tokenizer"])
        usable, rows = [], []
        problems = []
        for pair in pairs:
            try:
                tokens, is_cut = caption_tokens(vocabulary, pair.caption, self.context_length)
            except UserError as error:
                problems.append((pair.name, f"{pair.name}: {error}"))
                continue
            usable.append(pair)
            rows.append(tokens)
            if is_cut:
                self.truncated.append(pair.name)
        refuse(data, problems, len(usable))
        return Pairs(usable, rows, load, prepare)

    def tell_truncated(self, data: Data) -> None:
        """Counts longer captions, and says so once."""
        if self.truncated:
            data.counts["cut_captions"] = len(self.truncated)
            text = f"truncated {len(self.truncated):,} longer captions, such as that of {self.truncated[0]}"
            warn(data, f"--data.context_length {self.context_length}: {text}")


class Pairs(Dataset):
    """Pictures with the tokens of a caption, by index; the tokens are in one tensor, which workers share."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        rows: Sequence[Sequence[int]],
        load: Callable[[Any], Any],
        prepare: Callable[[Any], Tensor] | None,
    ) -> None:
        self.images = [pair.image for pair in pairs]
        self.names = [pair.name for pair in pairs]
        self.numbers = torch.tensor([[pair.number, number_of(pair.caption)] for pair in pairs]).view(-1, 2)
        self.tokens = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
        self.ends = torch.tensor([len(row) for row in rows]).cumsum(0).tolist()
        self.load = load
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[dict[str, Any], Tensor]:
        image = self.load(self.images[index])
        end = self.ends[index]
        tokens = self.tokens[self.ends[index - 1] if index else 0 : end].long()
        inputs = {
            "image": image if self.prepare is None else self.prepare(image),
            "tokens": tokens,
            "mask": torch.ones_like(tokens, dtype=torch.bool),
        }
        return inputs, self.numbers[index]


class OnImage:
    """Applies a transform to the picture of a sample."""

    def __init__(self, change: Callable[[Any], Tensor]) -> None:
        self.change = change

    def __call__(self, sample: tuple[dict[str, Any], Tensor]) -> tuple[Inputs, Tensor]:
        inputs, numbers = sample
        return {**inputs, "image": self.change(inputs["image"])}, numbers


def number_of(text: str) -> int:
    """A number in [0, 2⁶³) of a caption, or of the name of a picture; two others share it with a chance of 1e-19."""
    return int.from_bytes(hashlib.blake2b(text.strip().encode(errors="surrogateescape"), digest_size=8).digest()) >> 1


def cut_by_picture(pairs: Sequence[Pair], val_share: float, test_share: float) -> dict[str, list[Pair]]:
    """Divides pairs into train, val and test, so that no picture is in two of them, with a fixed seed.

    Args:
        pairs: all of them.
        val_share: share of the pictures for validation.
        test_share: share of the pictures for testing; 0 for none.

    Raises:
        UserError: there are too few pictures.
    """
    numbers = list(dict.fromkeys(pair.number for pair in pairs))
    parts = split_indices(len(numbers), [1 - val_share - test_share, val_share, test_share])
    splits: dict[str, list[Pair]] = {}
    for (split, share), part in zip({"train": 1.0, "val": val_share, "test": test_share}.items(), parts, strict=True):
        own = {numbers[index] for index in part}
        if own:
            splits[split] = [pair for pair in pairs if pair.number in own]
        elif share:
            option = "test_share" if split == "test" else "val_share"
            shares = f"{test_share if split == 'test' else val_share} of {len(numbers)} pictures"
            raise UserError(f"--data.{option}: {shares} leaves none for {split}")
    return splits


def check_shares(val_share: float, test_share: float) -> None:
    """Looks whether shares leave something for training.

    Raises:
        ValueError: they do not.
    """
    if not 0 < val_share < 1:
        raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
    if not 0 <= test_share < 1 - val_share:
        raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")


def hold(
    data: Any, splits: dict[str, list[Pair]], captions: Captions, reader: PictureReader, load: Callable[[Any], Any]
) -> None:
    """Sets the data sets and facts of a data module.

    Args:
        data: the module.
        splits: pairs of train, val and maybe test.
        captions: makes tokens.
        reader: prepares pictures.
        load: reads the picture of a pair.
    """
    captions.learn(data.facts, (pair.caption for pair in splits["train"]))
    data.facts["image_shape"] = reader.shape
    data.train_set = captions.encoded(data, splits["train"], load, None)
    data.val_set = captions.encoded(data, splits["val"], load, reader.evaluated)
    has_test = "test" in splits
    data.test_set = captions.encoded(data, splits["test"], load, reader.evaluated) if has_test else None
    captions.tell_truncated(data)
