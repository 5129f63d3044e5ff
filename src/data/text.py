"""Plain text for language models."""

import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from playbook import Data, UserError, files_below, split_indices
from src.data.prompts import as_prompt, collate, text_of
from src.ops.vocabularies import END, PAD, Characters, Kind, Vocabulary, describe, learn_vocabulary, vocabulary_from

IGNORED = -100  # as a target: nothing is to be learnt here
NUM_PROMPTS = 8  # that `predict` goes on from without --input
KINDS: tuple[Kind, ...] = ("characters", "bytes", "bpe")
NOT_SOURCE = {"test", "tests", "idlelib", "idle_test", "site-packages", "__pycache__", "lib2to3", "turtledemo"}


class Text(Data):
    """The next token of a plain text: a file, a folder of files, or the Python standard library's own source.

    A file is cut into train, validation and test where it stands; of a folder, whole files go to each, drawn with a
    fixed seed. Training takes windows of T tokens that begin at random, about one for every T tokens of text in an
    epoch. Evaluation goes through all of the text in windows side by side, so that every token but the first is
    predicted once, from up to T - 1 tokens before it.

    Args:
        root: a text file in UTF-8, or a folder of them; the modules of the Python that runs if it is left out, without
            their tests.
        vocabulary: characters, those of the training text; bytes; or bpe, byte pairs that are learnt from the training
            text (Sennrich et al. 2016).
        vocab_size: number of tokens of bpe, at least 258.
        context_length: tokens of a window, T, at least 2.
        batch_size: windows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the text, or of the files, for validation, in (0, 1).
        test_share: share for the test, in [0, 1); 0 for no test.
        suffixes: of the files to take from a folder; all if there are none.
        loader: further options of Data.

    Shapes:
        tokens (B, T); target (B, T), the token behind each, -100 where the text has ended.

    Raises:
        ValueError: a value is out of range.
        UserError: there is no text, it is too short, it is not UTF-8, a character is not in the vocabulary, or another
            vocabulary is asked for than the checkpoint's.
    """

    columns = ("prompt", "text")
    collate = staticmethod(collate)

    def __init__(
        self,
        root: str | None = None,
        vocabulary: Kind = "characters",
        vocab_size: int = 4096,
        context_length: int = 256,
        batch_size: int = 64,
        num_workers: int = 0,
        val_share: float = 0.1,
        test_share: float = 0.0,
        suffixes: Sequence[str] = (),
        **loader: Any,
    ) -> None:
        super().__init__(batch_size, num_workers, **loader)
        if vocabulary not in KINDS:
            raise ValueError(f"vocabulary: expected one of {', '.join(KINDS)}, got {vocabulary}")
        if context_length < 2:
            raise ValueError(f"context_length: expected at least 2 tokens, got {context_length}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        self.root = root
        self.kind: Kind = vocabulary
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.shares = [1 - val_share - test_share, val_share, test_share]
        self.suffixes = tuple(suffixes)
        self.augment = self._shifted
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        train, val, test = self._read_parts()
        vocabulary = self._vocabulary(train)
        length = self.context_length
        self.train_tokens = encoded(vocabulary, train)  # (N,)
        self.train_set = _Starts(len(self.train_tokens), length)
        self.val_set = _Windows(encoded(vocabulary, val), length, vocabulary.pad)
        self.test_set = _Windows(encoded(vocabulary, test), length, vocabulary.pad) if test else None
        self.predict_set = _Prompts(self.test_set or self.val_set, max(1, min(length // 2, 64)))
        for name, part in (("train", self.train_set), ("val", self.val_set)):
            if not len(part):
                raise UserError(f"--data.root {self.root}: the {name} part is too short, expected over {length} tokens")

    def read(self, source: Any) -> dict[str, Tensor]:
        """Reads a prompt from a text, a row with `prompt` or `text`, or a file: `tokens` (T,)."""
        if "tokenizer" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint knows no vocabulary; expected that of a language model")
        if not hasattr(self, "_reader"):
            self._reader = vocabulary_from(self.facts["tokenizer"])
        return as_prompt(self._reader.encode(text_of(source, self.columns)), self.facts["context_length"] + 1)

    def ids(self, dataset: Any) -> list[str]:
        """Where in the text each window begins, as in `val:512`, counted in tokens."""
        part = "test" if self.test_set is not None else "val"
        return [f"{part}:{start}" for start in getattr(dataset, "starts", range(len(dataset)))]

    def _shifted(self, start: int) -> tuple[dict[str, Tensor], Tensor]:
        """A training window that begins at random, up to T tokens later."""
        tokens, length = self.train_tokens, self.context_length
        start = min(start + int(torch.randint(length, ())), len(tokens) - length - 1)
        window = torch.from_numpy(tokens[start : start + length + 1].astype(np.int64))  # (T + 1,)
        return {"tokens": window[:-1]}, window[1:]

    def _read_parts(self) -> tuple[list[str], list[str], list[str]]:
        """Documents of each part."""
        root = Path(sysconfig.get_path("stdlib") if self.root is None else self.root).expanduser()
        if root.is_file():
            text = read_text(root)
            ends = [round(len(text) * sum(self.shares[: place + 1])) for place in range(2)]
            parts = text[: ends[0]], text[ends[0] : ends[1]], text[ends[1] :]
            train, val, test = ([part] if part else [] for part in parts)
            return train, val, test
        if not root.is_dir():
            raise UserError(
                f"--data.root {self.root}: no such file or folder; expected a text file or a folder of them"
            )
        files = files_below(root, (".py",) if self.root is None else self.suffixes)
        if self.root is None:
            files = [file for file in files if not NOT_SOURCE & set(file.relative_to(root).parts)]
        texts = [text for text in map(read_text, files) if text]
        train, val, test = ([texts[place] for place in part] for part in split_indices(len(texts), self.shares))
        if not (train and val and (test or not self.shares[2])):
            raise UserError(
                f"--data.root {self.root}: expected a file or more for each part, found {len(texts)} in all"
            )
        return train, val, test

    def _vocabulary(self, train: list[str]) -> Vocabulary:
        """The checkpoint's, or one that is learnt; it is a fact from then on."""
        if "tokenizer" in self.facts:
            vocabulary = vocabulary_from(self.facts["tokenizer"])
            if (kind := self.facts["tokenizer"]["kind"]) != self.kind:
                raise UserError(
                    f"--data.vocabulary {self.kind}: the checkpoint knows {describe(vocabulary)}; expected {kind}"
                )
        else:
            vocabulary = learn_vocabulary(self.kind, train, self.vocab_size)
            if isinstance(vocabulary, Characters) and len(train) > 1:
                vocabulary = Characters(vocabulary.characters, [END, PAD])  # documents need an end
        self.facts["tokenizer"] = vocabulary.plain()
        self.facts["context_length"] = self.context_length
        return vocabulary


def read_text(file: Path) -> str:
    """Text of a file in UTF-8.

    Raises:
        UserError: it is not.
    """
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"--data.root: {file.as_posix()}: is not text in UTF-8: {error}") from error


def encoded(vocabulary: Vocabulary, texts: Iterable[str]) -> np.ndarray:
    """Tokens of all documents one after the other, (N,), with the mark of the end behind each if there is one."""
    dtype = np.uint16 if vocabulary.size <= 2**16 else np.uint32
    end = [] if vocabulary.end is None else [vocabulary.end]
    rows = [np.array(vocabulary.encode(text) + end, dtype) for text in texts]
    return np.concatenate(rows) if rows else np.empty(0, dtype)


class _Starts(Dataset):
    """First places of windows of T tokens, side by side; a training window begins up to T places later."""

    def __init__(self, num_tokens: int, context_length: int) -> None:
        self.starts = range(0, num_tokens - context_length, context_length)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> int:
        return self.starts[index]


class _Windows(Dataset):
    """All tokens behind the first, each predicted once, in windows side by side.

    Args:
        tokens: (N,).
        context_length: tokens of a window, T.
        pad: token behind the end of the text, in the last window.
    """

    def __init__(self, tokens: np.ndarray, context_length: int, pad: int) -> None:
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


class _Prompts(Dataset):
    """The first tokens of windows that lie evenly in the text."""

    def __init__(self, windows: _Windows, length: int) -> None:
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
