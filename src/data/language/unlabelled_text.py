"""Texts without labels, for masked language modelling."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from playbook import Data, UserError, check_encoding, decode_text, files_below, split_indices
from src.data.language.columns import column_of
from src.data.language.prompts import text_of
from src.data.notices import by_suffix, warn
from src.data.row_files import SUFFIXES, Form, check_separator, read_rows
from src.ops.vocabularies import (
    MASK,
    Vocabulary,
    check_vocab_size,
    describe,
    learn_vocabulary,
    standalone,
    vocabulary_from,
)

TEXT_COLUMNS = ("text", "sentence", "review", "content", "comment")
Inputs = dict[str, Tensor]


def collate(samples: Sequence[Inputs]) -> Inputs:
    """Makes a batch: tokens and mask (B, T), where T is the length of the longest text."""
    return {name: pad_sequence([sample[name] for sample in samples], batch_first=True) for name in samples[0]}


class UnlabelledText(Data):
    """Texts from files: lines of .txt, and rows of CSV, TSV and JSON lines, with a vocabulary that has a mask token.

    Texts of more than T tokens are cut into pieces. Validation uses whole texts, chosen with a fixed seed. There is no
    test set.

    Args:
        sources: files, and folders whose files are read recursively, such as [data/sst2/train.tsv, data/reviews].
        text_column: name of the column that holds the text. Defaults to the first existing one of text, sentence,
            review, content and comment, or to column 1 without a header.
        header: whether the first line of a CSV or TSV names the columns; otherwise these are 1, 2, ….
        separator: character between the fields of a CSV or TSV, such as ";". Defaults to the comma for .csv and the tab
            for .tsv.
        quotes: whether quotes enclose fields of a CSV, which may then contain separators and line breaks; if not, they
            are text, as in a TSV, and every line is a row.
        encoding: encoding of the texts, such as latin-1 or utf-16.
        vocabulary: words, in lower case, or bpe, byte pairs (Sennrich et al. 2016), built from the training texts.
        vocab_size: largest number of tokens V; for words at least 4, for bpe at least 259.
        min_count: how often a word must occur in training to have a token of its own.
        max_length: largest number of tokens of a piece, T, at least 2.
        batch_size: pieces per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the texts used for validation, in (0, 1).
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to rows that
            cannot be used.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        bucket: number of training batches whose samples are sorted by length together, to put samples of similar length
            into a batch and reduce padding; the batches are then shuffled. 0 turns it off. For SST-2 in batches of 32,
            53 % of the tokens were padding without it, 12 % with 10 and 3 % with 50.

    Shapes:
        tokens (B, T); mask (B, T), True for tokens, False for padding after them.

    Raises:
        ValueError: a value is out of range.
        UserError: there is no such file, it holds no text, or the vocabulary differs from the checkpoint's.
    """

    columns = TEXT_COLUMNS
    collate = staticmethod(collate)
    test_set = None

    def __init__(
        self,
        sources: list[str],
        text_column: str | None = None,
        header: bool = True,
        vocabulary: Literal["words", "bpe"] = "words",
        vocab_size: int = 20_000,
        min_count: int = 1,
        max_length: int = 64,
        batch_size: int = 32,
        num_workers: int = 0,
        val_share: float = 0.02,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        bucket: int = 0,
        separator: str | None = None,
        quotes: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, bucket=bucket)
        if not sources:
            raise ValueError("sources: expected at least one file or folder, got none")
        if vocabulary not in ("words", "bpe"):
            raise ValueError(f"vocabulary: expected words or bpe, got {vocabulary}")
        check_vocab_size(vocabulary, vocab_size, [MASK])
        check_encoding(encoding)
        if min_count < 1:
            raise ValueError(f"min_count: expected at least 1, got {min_count}")
        if max_length < 2:
            raise ValueError(f"max_length: expected at least 2 tokens, got {max_length}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        self.sources = [Path(source).expanduser() for source in sources]
        self.header = header
        self.separator = check_separator(separator)
        self.quotes = quotes
        self.encoding = encoding
        self.text_columns = (text_column,) if text_column else TEXT_COLUMNS if header else ("1",)
        self.columns = (*self.text_columns, *(name for name in TEXT_COLUMNS if name not in self.text_columns))
        self.kind: Literal["words", "bpe"] = vocabulary
        self.vocab_size = vocab_size
        self.min_count = min_count
        self.max_length = max_length
        self.val_share = val_share
        self._reader: Vocabulary | None = None
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # Lightning asks for every stage
            return
        names, texts = zip(*self._texts(), strict=True)
        parts = split_indices(len(texts), [1 - self.val_share, self.val_share])
        for name, part in zip(("train", "val"), parts, strict=True):
            if not part:
                raise UserError(f"--data.val_share: {self.val_share} of {len(texts)} texts leaves none for {name}")
        vocabulary = self._learnt([texts[index] for index in parts[0]])
        self.facts |= {"tokenizer": vocabulary.plain(), "vocab_size": vocabulary.size}
        self.facts["context_length"] = self.max_length
        self.train_set, self.val_set = (
            _Pieces([names[i] for i in part], [vocabulary.encode(texts[i]) for i in part], self.max_length)
            for part in parts
        )
        self.predict_set = self.val_set

    def read(self, source: Any) -> Inputs:
        """Reads a text, a row with a column of text, or a file, with <mask> for words to fill in."""
        if "tokenizer" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint has no vocabulary; expected one that was trained on texts")
        if self._reader is None:
            self._reader = vocabulary_from(self.facts["tokenizer"])
        first, *others = text_of(source, self.columns, self.encoding).split(MASK)
        tokens = self._reader.encode(first)
        for part in others:
            tokens += [self._reader.special[MASK], *self._reader.encode(part)]
        if not tokens:
            raise UserError("the text is empty")
        return _inputs(torch.tensor(tokens[: self.max_length]))

    def unlabelled(self, source: Any) -> Inputs:
        """The same as `read`, as batches have no target."""
        return self.read(source)

    def preprocessing(self) -> dict[str, Any] | None:
        if "tokenizer" not in self.facts:
            return None
        tokenizer, rows = standalone(self.facts["tokenizer"]), {"columns": list(self.columns), "header": self.header}
        return {"kind": "masked_text", **rows, "tokenizer": tokenizer, "max_length": self.max_length}

    def ids(self, dataset: Any) -> list[str]:
        """File and line of each text, and the token at which a piece begins, as in reviews.txt:17:64."""
        return dataset.names

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Name and content of each text that is not empty."""
        empty: list[str] = []
        for file in self._files():
            num_texts = 0
            for line, text in self._read(file):
                if text.strip():
                    num_texts += 1
                    yield f"{file.name}:{line}", text
                elif file.suffix.lower() != ".txt":  # where empty lines are usual
                    empty.append(f"{file.name}:{line}")
            if not num_texts:
                raise UserError(f"--data.sources: {file.as_posix()}: holds no text")
        if empty:
            self._left_out("rows", len(empty), f"{len(empty):,} rows without a text, such as {empty[0]}")

    def _files(self) -> list[Path]:
        kinds = (".txt", *SUFFIXES)
        files: list[Path] = []
        others: list[str] = []
        for source in self.sources:
            if not source.exists():
                raise UserError(f"--data.sources: {source.as_posix()}: no such file or folder")
            below = files_below(source) if source.is_dir() else [source]
            readable = [file for file in below if file.suffix.lower() in kinds]
            if not readable:
                raise UserError(f"--data.sources: {source.as_posix()}: expected files of {', '.join(kinds)}")
            files += readable
            others += [file.as_posix() for file in below if file.suffix.lower() not in kinds]
        if others:
            text = f"{len(others):,} files that hold no lines or rows ({by_suffix(others)}), such as {others[0]}"
            self._left_out("files", len(others), text)
        return files

    def _read(self, file: Path) -> Iterator[tuple[int, str]]:
        """Texts of a file with their lines; <br />, HTML's line break, becomes a space."""
        if file.suffix.lower() == ".txt":
            content = decode_text(file.read_bytes(), f"--data.sources: {file.as_posix()}", self.encoding)
            for line, text in enumerate(content.splitlines(), start=1):
                yield line, text.replace("<br />", " ")
            return
        form = Form(self.header, self.separator, self.quotes, self.encoding, "--data.sources")
        for line, row in read_rows(file, form, self.text_columns, partial(warn, self)):
            try:
                text = self._text_of(row)
            except UserError as error:
                place = f"{file.as_posix()}:{line}"
                if self.on_error == "stop":
                    raise UserError(f"--data.sources: {place}: {error}") from error
                self._skip(place, f"{place}: {error}")
                continue
            yield line, text.replace("<br />", " ")

    def _text_of(self, row: dict[str, Any] | str) -> str:
        if isinstance(row, str):
            raise UserError(row)
        text = row[column_of(row, self.text_columns, "text_column")]
        if not isinstance(text, str):
            raise UserError(f"expected a text, got {text!r:.60}")
        return text

    def _learnt(self, texts: Sequence[str]) -> Vocabulary:
        """The checkpoint's vocabulary, or one learnt from these texts."""
        if "tokenizer" not in self.facts:
            return learn_vocabulary(self.kind, texts, self.vocab_size, self.min_count, [MASK])
        vocabulary = vocabulary_from(self.facts["tokenizer"])
        if (kind := self.facts["tokenizer"]["kind"]) != self.kind:
            raise UserError(
                f"--data.vocabulary {self.kind}: the checkpoint has {describe(vocabulary)}; expected {kind}"
            )
        return vocabulary


class _Pieces(Dataset):
    """Pieces of texts by index; in one tensor, which workers share."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[int]], max_length: int) -> None:
        self.names, lengths = [], []
        for name, row in zip(names, rows, strict=True):
            for start in range(0, len(row), max_length):
                self.names.append(f"{name}:{start}" if start else name)
                lengths.append(min(max_length, len(row) - start))
        self.lengths = torch.tensor(lengths, dtype=torch.int64)
        self.ends = self.lengths.cumsum(0).tolist()
        flat = np.concatenate([np.array(row, np.int32) for row in rows])
        self.tokens = torch.from_numpy(flat)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Inputs:
        return _inputs(self.tokens[self.ends[index - 1] if index else 0 : self.ends[index]].long())


def _inputs(tokens: Tensor) -> Inputs:
    return {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}
