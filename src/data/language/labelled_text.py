"""Texts with class labels, from tables in files."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from playbook import Data, UserError, check_encoding, decode_text, nearest, split_indices
from src.data.language.columns import LABEL_COLUMNS, TEXT_COLUMNS, column_of
from src.data.notices import refuse, warn, warn_of_copies
from src.data.row_files import Form, check_separator, read_rows
from src.data.split_files import is_single, split_files
from src.ops.vocabularies import (
    Kind,
    Vocabulary,
    check_vocab_size,
    describe,
    found_again,
    learn_vocabulary,
    standalone,
    vocabulary_from,
    vocabulary_of,
)

KINDS: tuple[Kind, ...] = ("words", "characters", "bytes", "bpe")
Inputs = dict[str, Tensor]


def collate(samples: Sequence[tuple[Inputs, int]]) -> tuple[Inputs, Tensor]:
    """Makes a batch: tokens and mask (B, T), where T is the length of the longest text, and target (B,)."""
    names = samples[0][0]
    inputs = {name: pad_sequence([sample[name] for sample, _ in samples], batch_first=True) for name in names}
    return inputs, torch.tensor([target for _, target in samples])


class LabelledText(Data):
    """Texts and their classes in root/train.*, root/dev.* and root/test.*, which are CSV, TSV, JSON lines or Parquet.

    The file dev may also be named val, valid or validation; without it, validation is taken from train. A single file
    is divided into all three splits. Data sets of Hugging Face's hub are Parquet, with names such as
    train-00000-of-00002.parquet, and contain the names of their classes (`--extra parquet`). In other formats, the
    classes are the labels of train in alphabetical order, or in numerical order if all are integers.

    Args:
        root: folder that contains the files, or a single file.
        text_column: name of the column that holds the text. Defaults to the first existing one of text, sentence,
            review, content, comment, question and prompt, or to column 1 without a header.
        label_column: name of the column that holds the label. Defaults to the first existing one of label, class,
            category, target and sentiment, or to column 2 without a header.
        header: whether the first line of a CSV or TSV names the columns; otherwise these are 1, 2, ….
        separator: character between the fields of a CSV or TSV, such as ";". Defaults to the comma for .csv and the tab
            for .tsv.
        quotes: whether quotes enclose fields of a CSV, which may then contain separators and line breaks; if not, they
            are text, as in a TSV, and every line is a row.
        encoding: encoding of the texts, such as latin-1 or utf-16.
        class_names: name of each label, such as {"0": negative, "1": positive}, in the order of the classes.
        vocabulary: words, in lower case; characters; bytes; or bpe, byte pairs (Sennrich et al. 2016). It is built from
            the training texts.
        vocab_size: largest number of tokens V of words, at least 3, and of bpe, at least 258.
        min_count: how often a word must occur in training to have a token of its own.
        vocabulary_of: run directory or checkpoint whose vocabulary to use, as for the base of a LoRA, or directory or
            name of a Hugging Face model. --init_from uses the vocabulary of its checkpoint without this option.
        max_length: largest number of tokens of a text, T; longer texts are truncated.
        batch_size: texts per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of train, or of a single file, used for validation, chosen with a fixed seed, in (0, 1).
        test_share: share of a single file used for testing, in [0, 1).
        on_error: what happens when loading a sample raises an exception: `stop` ends the training with a checkpoint,
            `skip` leaves the sample out and counts it (`skipped_samples` in metrics.json). Also applies to rows that
            cannot be used.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated.
        bucket: number of training batches whose samples are sorted by length together, to put samples of similar length
            into a batch and reduce padding; the batches are then shuffled. 0 turns it off. For SST-2 in batches of 32,
            53 % of the tokens were padding without it, 12 % with 10 and 3 % with 50.

    Shapes:
        tokens (B, T); mask (B, T), True for tokens, False for padding after them; target (B,), 0 to K - 1.

    Raises:
        ValueError: a value is out of range.
        UserError: there is no file, a row cannot be used, there is only one class, or dev or test has a label that
            train lacks.
    """

    columns: tuple[str, ...] = TEXT_COLUMNS
    collate = staticmethod(collate)

    def __init__(
        self,
        root: str,
        text_column: str | None = None,
        label_column: str | None = None,
        header: bool = True,
        class_names: dict[str, str] | None = None,
        vocabulary: Kind = "words",
        vocab_size: int = 20_000,
        min_count: int = 1,
        vocabulary_of: str | None = None,
        max_length: int = 256,
        batch_size: int = 32,
        num_workers: int = 0,
        val_share: float = 0.1,
        test_share: float = 0.1,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
        bucket: int = 0,
        separator: str | None = None,
        quotes: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(
            batch_size, num_workers, on_error=on_error, timeout_s=timeout_s, balanced=balanced, bucket=bucket
        )
        if vocabulary not in KINDS:
            raise ValueError(f"vocabulary: expected one of {', '.join(KINDS)}, got {vocabulary}")
        check_vocab_size(vocabulary, vocab_size)
        check_encoding(encoding)
        if min_count < 1:
            raise ValueError(f"min_count: expected at least 1, got {min_count}")
        if max_length < 1:
            raise ValueError(f"max_length: expected at least 1 token, got {max_length}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        if class_names is not None and len(set(class_names.values())) < len(class_names):
            raise ValueError(f"class_names: expected different names, got {', '.join(class_names.values())}")
        self.root = Path(root).expanduser()
        self.header = header
        self.separator = check_separator(separator)
        self.quotes = quotes
        self.encoding = encoding
        self.text_columns = (text_column,) if text_column else TEXT_COLUMNS if header else ("1",)
        self.label_columns = (label_column,) if label_column else LABEL_COLUMNS if header else ("2",)
        self.columns = (*self.text_columns, *(name for name in TEXT_COLUMNS if name not in self.text_columns))
        self.class_names = class_names
        self.kind: Kind = vocabulary
        self.vocab_size = vocab_size
        self.min_count = min_count
        self.vocabulary_of = vocabulary_of
        self.max_length = max_length
        self.val_share = val_share
        self.test_share = test_share
        self._cut_texts: list[str] = []
        self._reader: Vocabulary | None = None
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        is_test = stage in ("test", "predict")
        if hasattr(self, "train_set") or (is_test and hasattr(self, "test_set")):  # Lightning asks for every stage
            return
        self.prepare_read()
        self._check_vocabulary()
        files = split_files(self, self.root)
        parts = {}
        if not (is_test and "test" in files and {"classes", "tokenizer"} <= self.facts.keys()):
            parts = {"train": self._read(files["train"])}
        parts |= {name: self._read(file) for name, file in files.items() if name not in ("train", "val")}
        if "train" in parts:
            parts |= {"val": self._read(files["val"])} if "val" in files else {}
            self._cut(parts, is_single=is_single(files, self.root))
            self._learn_classes(parts["train"])
            copies = {name: [(text.content, text.name) for text in texts] for name, texts in parts.items()}
            warn_of_copies(self, copies, "texts")
        sets = {}
        for name, texts in parts.items():
            if name == "train":
                self._learn_vocabulary([text.content for text in texts])
            sets[name] = self._encoded(texts)
        self.facts["context_length"] = self.max_length
        self.test_set = sets.get("test")
        if "train" in sets:
            self.train_set, self.val_set = sets["train"], sets["val"]
            self.count_classes()
        self._tell_of_cuts()

    def prepare_read(self) -> None:
        if "tokenizer" in self.facts:
            self.facts["tokenizer"] = found_again(self.facts["tokenizer"], self.vocabulary_of, "--data.vocabulary_of")

    def read(self, source: Any) -> Inputs:
        """Reads a text, a row with a column of text, or a file: tokens (T,) and mask (T,), all True."""
        if "tokenizer" not in self.facts:
            raise UserError("--ckpt_path: the checkpoint has no vocabulary; expected one that was trained on texts")
        text = self._text_of(source)
        is_first = not self._cut_texts
        tokens = self._tokens(text, f"{text[:40]!r}")
        if is_first and self._cut_texts:
            warn(self, f"--data.max_length {self.max_length}: longer texts are truncated, the first is {text[:40]!r}…")
        return _inputs(torch.tensor(tokens))

    def preprocessing(self) -> dict[str, Any] | None:
        if "tokenizer" not in self.facts:
            return None
        reader = vocabulary_from(self.facts["tokenizer"])
        frame = [list(tokens) for tokens in getattr(reader, "frame", ([], []))]
        tokenizer = standalone(self.facts["tokenizer"])
        rows = {"columns": list(self.columns), "header": self.header}
        return {"kind": "text", **rows, "tokenizer": tokenizer, "frame": frame, "max_length": self.max_length}

    def ids(self, dataset: Any) -> list[str]:
        """File and line of each text, as in test.tsv:17."""
        return dataset.names

    # files and rows

    def _read(self, files: list[Path]) -> list["_Text"]:
        """Texts of files; rows that cannot be used end the run, or are skipped."""
        texts: list[_Text] = []
        problems: list[tuple[str, str]] = []
        form = Form(self.header, self.separator, self.quotes, self.encoding)
        for file in files:
            for line, row in read_rows(file, form, self.text_columns + self.label_columns, partial(warn, self)):
                place = f"{file.as_posix()}:{line}"
                try:
                    content, label = self._fields(row)
                except UserError as error:
                    problems.append((place, f"{place}: {error}"))
                    continue
                texts.append(_Text(f"{file.name}:{line}", place, content, label))
        refuse(self, problems, len(texts))
        return texts

    def _fields(self, row: dict[str, Any] | str) -> tuple[str, str]:
        """Text and label of a row.

        Raises:
            UserError: one of them is missing.
        """
        if isinstance(row, str):
            raise UserError(row)
        text_column = column_of(row, self.text_columns, "text_column")
        content = row[text_column]
        label = row[column_of(row, self.label_columns, "label_column", [text_column])]
        for kind, value, is_usable in (
            ("text", content, isinstance(content, str)),
            ("label", label, isinstance(label, str | int | float)),
        ):
            if not is_usable:
                raise UserError(f"expected a {kind}, got {value!r:.60}")
            if not str(value).strip():
                raise UserError(f"the {kind} is empty")
        return content, str(label).strip()

    def _cut(self, parts: dict[str, list["_Text"]], is_single: bool) -> None:
        """Takes validation from train if there is no file for it; of a single file, the test as well."""
        if "val" in parts:
            return
        whole = parts["train"]
        test_share = self.test_share if is_single else 0.0
        shares = [1 - self.val_share - test_share, self.val_share, test_share]
        for name, part in zip(("train", "val", "test"), split_indices(len(whole), shares), strict=True):
            if part:
                parts[name] = [whole[index] for index in part]
            elif name != "test":
                raise UserError(f"--data.val_share: {self.val_share} of {len(whole)} texts leaves none for {name}")

    # classes and vocabulary

    def _learn_classes(self, train: list["_Text"]) -> None:
        if "classes" in self.facts:  # of a checkpoint
            return
        labels = sorted({text.label for text in train}, key=_sort_key({text.label for text in train}))
        if self.class_names is not None:
            for text in train:
                self._name(text.label, text.place)
            labels = [label for label in self.class_names if label in labels] if len(labels) < 2 else labels
        if len(labels) < 2:
            place = train[0].place.rpartition(":")[0]
            raise UserError(f"--data.root: {place}: every text has the label {labels[0]}, expected two or more classes")
        self.facts["classes"] = labels if self.class_names is None else list(self.class_names.values())
        first: dict[Any, str] = {}
        for label in self.facts["classes"]:
            if (former := first.setdefault(_meaning(label), label)) != label:
                warn(self, f"--data.root: {former} and {label} count as two classes of {', '.join(labels)}")

    def _name(self, label: str, place: str) -> str:
        """Name of the class with this label."""
        if self.class_names is None:
            return label
        if label not in self.class_names:
            known = ", ".join(self.class_names)
            near = nearest(label, self.class_names)
            raise UserError(f"--data.class_names: {place}: expected a label of {known}, got {label}{near}")
        return self.class_names[label]

    def _learn_vocabulary(self, texts: list[str]) -> None:
        """Takes the checkpoint's vocabulary, that of another run, or learns one."""
        known = self.facts.get("tokenizer")
        if known is None and self.vocabulary_of is not None:
            known = vocabulary_of(self.vocabulary_of, "--data.vocabulary_of").plain()
        if known is None:
            known = learn_vocabulary(self.kind, texts, self.vocab_size, self.min_count).plain()
        self.facts |= {"tokenizer": known, "vocab_size": vocabulary_from(known).size}
        self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        known = self.facts.get("tokenizer")
        if known is not None and known["kind"] not in (self.kind, "huggingface"):
            has = describe(vocabulary_from(known))
            raise UserError(f"--data.vocabulary {self.kind}: the checkpoint has {has}; expected {known['kind']}")

    def _tokens(self, text: str, place: str) -> list[int]:
        if self._reader is None:
            self._reader = vocabulary_from(self.facts["tokenizer"])
        tokens = self._reader.encode(text)
        if not tokens:
            raise UserError(f"the text {text!r:.40} has no token, expected a word or sign")
        before, behind = getattr(self._reader, "frame", ([], []))
        room = max(self.max_length - len(before) - len(behind), 1)
        if len(tokens) > room:
            self._cut_texts.append(place)
        return [*before, *tokens[:room], *behind]

    def _text_of(self, source: Any) -> str:
        """The text in a row, a line, a file or its bytes."""
        content = source[column_of(source, self.columns, "text_column")] if isinstance(source, dict) else source
        content = content.read_bytes() if isinstance(content, Path) else content
        if isinstance(content, bytes):
            place = source.as_posix() if isinstance(source, Path) else "standard input"
            content = decode_text(content, place, self.encoding)
        if not isinstance(content, str):
            raise UserError(f"expected a text, got {content!r:.60}")
        if not content.strip():
            raise UserError("the text is empty")
        return content

    def _encoded(self, texts: list["_Text"]) -> "_Encoded":
        classes = self.facts["classes"]
        names, rows, targets = [], [], []
        problems: list[tuple[str, str]] = []
        for text in texts:
            name = self._name(text.label, text.place)
            if name not in classes:
                known = ", ".join(classes[:5]) + (f" and {len(classes) - 5} more" if len(classes) > 5 else "")
                near = nearest(name, classes)
                problems.append((text.place, f"{text.place}: training had no class {name}, but {known}{near}"))
                continue
            try:
                tokens = self._tokens(text.content, text.name)
            except UserError as error:
                problems.append((text.place, f"{text.place}: {error}"))
                continue
            names.append(text.name)
            rows.append(torch.tensor(tokens, dtype=torch.int32))
            targets.append(classes.index(name))
        refuse(self, problems, len(targets))
        return _Encoded(names, rows, targets)

    def _tell_of_cuts(self) -> None:
        if self._cut_texts:
            self.counts["cut_texts"], first = len(self._cut_texts), self._cut_texts[0]
            warn(
                self,
                f"--data.max_length {self.max_length}: truncated {len(self._cut_texts):,} longer texts, "
                f"such as {first}",
            )
            self._cut_texts = []


class _Text(NamedTuple):
    name: str  # file.csv:17
    place: str  # the same with the folder, for messages
    content: str
    label: str


class _Encoded(Dataset):
    """Tokens of texts by index, with the number of their class; in one tensor, which workers share."""

    def __init__(self, names: list[str], rows: list[Tensor], targets: list[int]) -> None:
        self.names = names
        self.targets = targets
        self.lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        self.tokens = torch.cat([torch.empty(0, dtype=torch.int32), *rows])
        self.ends = self.lengths.cumsum(0).tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Inputs, int]:
        end = self.ends[index]
        return _inputs(self.tokens[self.ends[index - 1] if index else 0 : end].long()), self.targets[index]


def _inputs(tokens: Tensor) -> Inputs:
    return {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}


def _meaning(label: str) -> Any:
    """A label without what people write differently by mistake: capitals, spaces, and 1.0 for 1."""
    try:
        return float(label)
    except ValueError:
        return "".join(label.casefold().split())


def _sort_key(labels: set[str]) -> Any:
    """By number where all labels are integers, so that 10 comes after 9."""
    return (lambda label: (int(label), label)) if all(re.fullmatch(r"-?\d+", label) for label in labels) else None
