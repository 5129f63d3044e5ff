"""Plain text for language models."""

import hashlib
import json
import os
import sysconfig
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader

from playbook import Data, UserError, decode_text, files_below, split_indices
from src.data.language.prompts import IGNORED, as_prompt, collate, text_of
from src.data.language.token_files import Span, encode_text, open_tokens, plan_parts, texts_of, write_tokens
from src.data.language.windows import Packed, Prompts, ShiftedWindows, Tokens, Windows
from src.data.notices import by_suffix, name_some, warn
from src.ops.vocabularies import (
    END,
    PAD,
    Characters,
    Kind,
    Vocabulary,
    check_vocab_size,
    describe,
    fingerprint,
    found_again,
    learn_vocabulary,
    standalone,
    vocabulary_from,
    vocabulary_of,
)

LARGE_BYTES = 2**23  # texts from this size on are tokenised into files, once
LEARNT_BYTES = 2**25  # of a large training text from which byte pairs are learnt
KINDS: tuple[Kind, ...] = ("characters", "bytes", "bpe")
NOT_SOURCE = {"test", "tests", "idlelib", "idle_test", "site-packages", "__pycache__", "lib2to3", "turtledemo"}
Document = tuple[Path, str]  # a file and its text


class Text(Data):
    """The next token of a text: a file, a folder of files, documents, or the Python standard library's own source.

    A file is split into train, validation and test in order; of a folder, whole files go to each split, chosen with a
    fixed seed. Training uses windows of T tokens that begin at random, about one for every T tokens of text in an
    epoch. Evaluation uses consecutive windows, so that every token but the first is predicted once, from up to T - 1
    tokens before it.

    Files of JSON lines, `{"text": …}`, hold one document per line, each of which goes to a split. They, and texts of
    more than 8 MiB, are tokenised into files in `cache` the first time, on all cores; a killed run continues where it
    stopped. Training reads from these files what it needs and never loads them whole.

    Args:
        root: a text file in UTF-8, a .jsonl file, or a folder of these. Defaults to the standard library of the running
            Python, without its tests.
        vocabulary: characters, those of the training text; bytes; or bpe, byte pairs learnt from the training text
            (Sennrich et al. 2016).
        vocab_size: number of tokens of bpe, at least 258.
        vocabulary_of: directory or name of a Hugging Face model whose tokenizer is taken in place of these, or a run
            directory or checkpoint, whose vocabulary is taken.
        context_length: tokens of a window, T, at least 2.
        batch_size: windows per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the text, or of the files, used for validation, in (0, 1).
        test_share: share used for testing, in [0, 1); 0 for no test.
        suffixes: suffixes of the files to read from a folder; an empty list reads all.
        packing: whether training rows hold as many whole documents as fit, without attention between them; each token
            then occurs once per epoch. Needs an end-of-document token: folders, .jsonl, bytes or bpe.
        cache: folder for the tokens of large texts. Defaults to playbook in $XDG_CACHE_HOME or ~/.cache.
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to files of a
            folder that are not text, of less than 8 MiB in all.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        tokens (B, T), with packing also documents and positions (B, T); target (B, T), the next token of each, -100
        after the end of the text or document.

    Raises:
        ValueError: a value is out of range.
        UserError: there is no text, it is too short, it is not UTF-8, a character is not in the vocabulary, or the
            vocabulary differs from the checkpoint's.
    """

    columns = ("prompt", "text")
    collate = staticmethod(collate)

    def __init__(
        self,
        root: str | None = None,
        vocabulary: Kind = "characters",
        vocab_size: int = 4096,
        vocabulary_of: str | None = None,
        context_length: int = 256,
        batch_size: int = 64,
        num_workers: int = 0,
        val_share: float = 0.1,
        test_share: float = 0.0,
        suffixes: Sequence[str] = (),
        packing: bool = False,
        cache: str | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error=on_error, timeout_s=timeout_s)
        if vocabulary not in KINDS:
            raise ValueError(f"vocabulary: expected one of {', '.join(KINDS)}, got {vocabulary}")
        check_vocab_size(vocabulary, vocab_size)
        if context_length < 2:
            raise ValueError(f"context_length: expected at least 2 tokens, got {context_length}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        self.root = root
        self.kind: Kind = vocabulary
        self.vocab_size = vocab_size
        self.vocabulary_of = vocabulary_of
        self.context_length = context_length
        self.shares = [1 - val_share - test_share, val_share, test_share]
        self.suffixes = tuple(suffixes)
        self.packing = packing
        default_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playbook"
        self.cache = default_cache if cache is None else Path(cache)
        self._has_told = False
        self.save_hyperparameters()

    def prepare_data(self) -> None:
        if not hasattr(self, "train_set") and self._goes_to_files(files := self._files()):
            self._write_files(files)

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks again for every stage
            return
        train, val, test, vocabulary = self._tokens()
        length = self.context_length
        self.facts |= {"tokenizer": vocabulary.plain(), "vocab_size": vocabulary.size}
        self.facts |= {"context_length": length, "ignore_index": IGNORED}
        self.train_tokens = train  # (N,)
        if self.packing and vocabulary.end is None:
            raise UserError(
                f"--data.packing: {describe(vocabulary)} of a single text have no end-of-document token; expected "
                "--data.vocabulary bytes or bpe, or a root of several documents"
            )
        if self.packing:
            assert vocabulary.end is not None
            self.train_set = Packed(train, vocabulary.end, length, vocabulary.pad)
            if self.train_set.num_cut:
                self.counts["documents_in_pieces"] = self.train_set.num_cut
                pieces = f"pieces of --data.context_length {length} tokens"
                warn(self, f"cut {self.train_set.num_cut:,} longer documents of train into {pieces}")
            if self.train_set.num_empty:
                text = f"{self.train_set.num_empty:,} documents of train without a token to predict"
                self._left_out("documents", self.train_set.num_empty, text)
        else:
            self.train_set = ShiftedWindows(train, length)
        self.val_set = Windows(val, length, vocabulary.pad)
        self.test_set = Windows(test, length, vocabulary.pad) if len(test) else None
        self.predict_set = Prompts(self.test_set or self.val_set, max(1, min(length // 2, 64)))
        for name, part in (("train", self.train_set), ("val", self.val_set)):
            if not len(part):
                raise UserError(f"--data.root {self.root}: the {name} part is too short, expected over {length} tokens")

    def train_dataloader(self) -> DataLoader:
        if self.packing:
            return super().train_dataloader()
        assert isinstance(self.train_set, ShiftedWindows), "set up"
        self.train_set.seed = self.seed
        return self._loader("train", self.train_set, shuffle=True, collate=None)

    def prepare_read(self) -> None:
        if "tokenizer" in self.facts:
            self.facts["tokenizer"] = found_again(self.facts["tokenizer"], self.vocabulary_of, "--data.vocabulary_of")

    def read(self, source: Any) -> dict[str, Tensor]:
        """Reads a prompt from a text, a row with `prompt` or `text`, or a file: `tokens` (T,)."""
        if "tokenizer" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint has no vocabulary; expected one of a language model")
        if not hasattr(self, "_reader"):
            self._reader = vocabulary_from(self.facts["tokenizer"])
        return as_prompt(self._reader.encode(text_of(source, self.columns)))

    def preprocessing(self) -> dict[str, Any] | None:
        if "tokenizer" not in self.facts:
            return None
        tokenizer, length = standalone(self.facts["tokenizer"]), self.facts["context_length"]
        return {"kind": "prompt", "columns": list(self.columns), "tokenizer": tokenizer, "context_length": length}

    def ids(self, dataset: Any) -> list[str]:
        """The token of the text at which each window begins, as in `val:512`."""
        part = "test" if self.test_set is not None else "val"
        return [f"{part}:{start}" for start in getattr(dataset, "starts", range(len(dataset)))]

    def _tokens(self) -> tuple[Tokens, Tokens, Tokens, Vocabulary]:
        """Tokens of train, val and test, from files if they are large, and their vocabulary."""
        known = self._known()
        files = self._files()
        if self._goes_to_files(files):
            vocabulary, tokens = open_tokens(*self._write_files(files))  # written already, by `prepare_data`
            return tokens["train"], tokens["val"], tokens["test"], vocabulary
        train, val, test = self._read_parts(files)
        vocabulary = known
        if vocabulary is None:
            vocabulary = learn_vocabulary(self.kind, [text for _, text in train], self.vocab_size)
            if isinstance(vocabulary, Characters) and len(train) > 1:
                vocabulary = Characters(vocabulary.characters, [END, PAD])  # documents need an end
        return encoded(vocabulary, train), encoded(vocabulary, val), encoded(vocabulary, test), vocabulary

    def _files(self) -> list[Path]:
        root = Path(sysconfig.get_path("stdlib") if self.root is None else self.root).expanduser()
        if root.is_file():
            if not root.stat().st_size:
                raise UserError(f"--data.root {self.root}: is empty, expected text")
            return [root]
        if not root.is_dir():
            raise UserError(
                f"--data.root {self.root}: no such file or folder; expected a text file or a folder of them"
            )
        if self.root is None:
            files = files_below(root, (".py",))
            return [f for f in files if not NOT_SOURCE & set(f.relative_to(root).parts) and f.stat().st_size]
        files = files_below(root)
        others = [file.as_posix() for file in files if self.suffixes and file.suffix.lower() not in self.suffixes]
        files = [file for file in files if not self.suffixes or file.suffix.lower() in self.suffixes]
        empty = [file.as_posix() for file in files if not file.stat().st_size]
        if not self._has_told:  # `prepare_data` and `setup` both ask
            self._has_told = True
            if others:
                text = f"{len(others):,} files of other suffixes ({by_suffix(others)}), such as {others[0]}"
                self._left_out("files", len(others), text)
            if empty:
                self._left_out("files", len(empty), f"{name_some(empty)}, which hold no text")
        return [file for file in files if file.stat().st_size]

    def _goes_to_files(self, files: Sequence[Path]) -> bool:
        return any(file.suffix == ".jsonl" for file in files) or (
            sum(file.stat().st_size for file in files) >= LARGE_BYTES
        )

    def _splits(self, files: Sequence[Path]) -> list[tuple[Path, str | None]]:
        """Each file with its split; None if the file or its documents are divided among the splits."""
        texts = [file for file in files if file.suffix != ".jsonl"]
        split: dict[Path, str] = {}
        if len(files) > 1:
            parts = split_indices(len(texts), self.shares)
            split = {texts[i]: name for name, part in zip(("train", "val", "test"), parts, strict=True) for i in part}
            self._require_parts(parts if len(texts) == len(files) else [[0]] * 3, len(files))
        return [(file, split.get(file)) for file in files]

    def _read_parts(self, files: Sequence[Path]) -> tuple[list[Document], list[Document], list[Document]]:
        """Documents of each part, each with its file."""
        if len(files) == 1 and self.root is not None and Path(self.root).expanduser().is_file():
            text = read_text(files[0])
            ends = [round(len(text) * sum(self.shares[: place + 1])) for place in range(2)]
            parts = text[: ends[0]], text[ends[0] : ends[1]], text[ends[1] :]
            train, val, test = ([(files[0], part)] if part else [] for part in parts)
            return train, val, test
        parts = split_indices(len(files), self.shares)
        self._require_parts(parts, len(files))
        train, val, test = ([row for place in part for row in self._read_file(files[place], files)] for part in parts)
        return train, val, test

    def _read_file(self, file: Path, files: Sequence[Path]) -> list[Document]:
        """A file of a folder and its text; nothing if it is not text, and such files are to be skipped."""
        try:
            return [(file, read_text(file))]
        except UserError as error:
            if self.on_error == "skip":
                self._skip(file.as_posix(), str(error).removeprefix("--data.root: "))
                return []
            others = Counter(other.suffix.lower() for other in files if other.suffix != file.suffix).most_common(1)
            only = f"; --data.suffixes [{others[0][0]}] reads only such files" if others and not self.suffixes else ""
            raise UserError(f"{error}{only}") from error

    def _require_parts(self, parts: Sequence[Sequence[int]], num_files: int) -> None:
        train, val, test = parts
        if not (train and val and (test or not self.shares[2])):
            raise UserError(f"--data.root {self.root}: expected at least one file per split, found {num_files} in all")

    def _write_files(self, files: Sequence[Path]) -> tuple[Path, Vocabulary]:
        """Tokenises large texts unless that is done; returns the folder of the tokens and their vocabulary."""
        states = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        key = hashlib.sha256(json.dumps([states, self.shares]).encode()).hexdigest()[:12]
        place = self.cache / f"tokens-{Path(self.root or 'python').stem}-{key}"
        parts = plan_parts(self._splits(files), self.shares)
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / "lock"):  # one process at a time writes; a killed one lets go of it
            vocabulary = self._learnt(place, parts, len(files) > 1)
            folder = place / fingerprint(vocabulary)
            if not (folder / "tokens.json").exists():
                write_tokens(folder, parts, self.shares, vocabulary)
        return folder, vocabulary

    def _learnt(self, place: Path, parts: Sequence[Sequence[Span]], has_documents: bool) -> Vocabulary:
        """The vocabulary of large texts: the checkpoint's, or that of the training part, learnt once."""
        if (known := self._known()) is not None:
            return known
        file = place / f"{self.kind}{self.vocab_size if self.kind == 'bpe' else ''}.json"
        if file.exists():
            try:
                return vocabulary_from(json.loads(file.read_bytes()))
            except ValueError as error:
                raise UserError(f"{file.as_posix()}: is damaged; delete it to write it again") from error
        if self.kind == "bpe":
            size = sum(span.end - span.start for part in parts for span in part)
            parts = parts[:: max(1, size // LEARNT_BYTES)]
        rows = (row for part in parts for row in texts_of(part, self.shares))
        texts = (text for split, text, _ in rows if split == "train")
        if self.kind == "characters":  # no more than the different ones of each text are held
            texts = ("".join(set(text)) for text in texts)
        vocabulary = learn_vocabulary(self.kind, texts, self.vocab_size)
        if isinstance(vocabulary, Characters) and (has_documents or any(s.split is None for p in parts for s in p)):
            vocabulary = Characters(vocabulary.characters, [END, PAD])  # documents need an end
        beside = file.with_suffix(".unfinished")
        beside.write_text(json.dumps(vocabulary.plain()))
        beside.replace(file)
        return vocabulary

    def _known(self) -> Vocabulary | None:
        """The checkpoint's vocabulary, or the one of `vocabulary_of`."""
        self.prepare_read()
        if "tokenizer" in self.facts:
            vocabulary = vocabulary_from(self.facts["tokenizer"])
        elif self.vocabulary_of is not None:
            vocabulary = vocabulary_of(self.vocabulary_of, "--data.vocabulary_of")
        else:
            return None
        if (kind := vocabulary.plain()["kind"]) not in (self.kind, "huggingface"):
            raise UserError(
                f"--data.vocabulary {self.kind}: the checkpoint has {describe(vocabulary)}; expected {kind}"
            )
        return vocabulary


def read_text(file: Path) -> str:
    """Text of a file in UTF-8.

    Raises:
        UserError: it is not.
    """
    return decode_text(file.read_bytes(), f"--data.root: {file.as_posix()}", option="", numbers_line=False)


def encoded(vocabulary: Vocabulary, documents: Iterable[Document]) -> np.ndarray:
    """Tokens of all documents one after the other, (N,), each followed by the end token if there is one."""
    dtype = np.uint16 if vocabulary.size <= 2**16 else np.uint32
    end = [] if vocabulary.end is None else [vocabulary.end]
    rows = [np.array(encode_text(vocabulary, text, file) + end, dtype) for file, text in documents]
    return np.concatenate(rows) if rows else np.empty(0, dtype)
