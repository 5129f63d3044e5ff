"""Raw inputs without labels: which files `predict --input` means, and how they come to the model."""

import csv
import glob
import io
import json
import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset, default_collate

from playbook.data.base import Data
from playbook.data.files import files_below
from playbook.errors import HowTo, UserError, nearest

COLUMNS = ("path", "file", "image", "filename", "file_name")  # of a list, the first of these that it has
LISTS = (".csv", ".tsv", ".jsonl", ".txt")
MISSING = """--input: {name} cannot read a single input. Write the method that does:
    def read(self, source):          # a path, or the bytes of a file
        image = ...                  # load it, and prepare it as evaluation does
        return image                 # the inputs of one sample, as in a batch but without its first dimension
and keep what it needs of the training data, such as class names, in self.facts: README.md, "Your own data\""""


class Sources:
    """Inputs and their names.

    Args:
        names: what each is called in the table: its path relative to the input.
        places: path of each, or the bytes of what came through standard input.
    """

    def __init__(self, names: Sequence[str], places: Sequence[Path | bytes]) -> None:
        self.names = names
        self.places = places

    def __len__(self) -> int:
        return len(self.names)


def find_sources(spec: str, formats: Sequence[str]) -> Sources:
    """Finds the inputs that an option means.

    Args:
        spec: a file, a folder, a glob, a list (.csv, .tsv, .jsonl or .txt) of paths, or - for standard input, which
            holds one file or a path a line.
        formats: suffixes of files to take from a folder; all files if there are none.

    Raises:
        UserError: there is nothing to read.
    """
    if not spec.strip():
        raise UserError("--input: is empty, expected a file, a folder, a glob, a list or -")
    if spec == "-":
        return _from_standard_input()
    path = Path(spec)
    if path.is_dir():
        files = files_below(path, formats)
        if not files:
            kinds = f" of {', '.join(formats)}" if formats else ""
            raise UserError(f"--input {spec}: the folder holds no files{kinds}")
        return Sources([file.relative_to(path).as_posix() for file in files], files)
    if path.is_file():
        return _from_list(path) if path.suffix.lower() in LISTS else Sources([path.name], [path])
    if glob.has_magic(spec):
        files = sorted(Path(name) for name in glob.glob(spec, recursive=True) if Path(name).is_file())
        if not files:
            raise UserError(f"--input {spec}: no file matches")
        fixed = Path(*_fixed_parts(path))
        return Sources([file.relative_to(fixed).as_posix() for file in files], files)
    siblings = [entry.as_posix() for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UserError(f"--input {spec}: no such file or folder{nearest(spec, siblings)}")


def _fixed_parts(pattern: Path) -> list[str]:
    """The folders of a glob before its first wildcard."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return parts


def _from_list(file: Path) -> Sources:
    """Paths in a list, relative to its folder or else to the working directory."""
    name = f"--input {file.as_posix()}"
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is not text in UTF-8: {error}") from error
    if file.suffix.lower() == ".jsonl":
        entries = _of_json_lines(name, text)
    elif file.suffix.lower() == ".txt":
        entries = [line.strip() for line in text.splitlines() if line.strip()]
    else:
        entries = _of_table(name, text, "\t" if file.suffix.lower() == ".tsv" else ",")
    if not entries:
        raise UserError(f"{name}: the list is empty")
    return Sources(entries, [_beside(file, entry) for entry in entries])


def _beside(file: Path, entry: str) -> Path:
    """The path of an entry of a list: relative to the list, or where there is nothing, to the working directory."""
    path = file.parent / entry
    return path if path.exists() or not Path(entry).exists() else Path(entry)


def _of_table(name: str, text: str, separator: str) -> list[str]:
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    header = [column.strip() for column in rows.fieldnames or []]
    rows.fieldnames = header
    column = _column(name, header)
    entries = []
    for row in rows:
        if not (row[column] or "").strip():
            raise UserError(f"{name}:{rows.line_num}: {column} is empty")
        entries.append(row[column].strip())
    return entries


def _of_json_lines(name: str, text: str) -> list[str]:
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(f"{name}:{number}: is not valid JSON: {error}") from error
        value = entry.get(_column(f"{name}:{number}", list(entry))) if isinstance(entry, dict) else entry
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{name}:{number}: expected the path of a file, got {value!r}")
        entries.append(value.strip())
    return entries


def _column(name: str, header: list[str]) -> str:
    column = next((column for column in COLUMNS if column in header), None)
    if column is None:
        has = ", ".join(header) or "none"
        raise UserError(f"{name}: expected a column {', '.join(COLUMNS[:-1])} or {COLUMNS[-1]} of paths, got {has}")
    return column


def _from_standard_input() -> Sources:
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise UserError("--input -: standard input is empty, expected one file or a path a line")
    try:
        lines = [line.strip() for line in content.decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        return Sources(["-"], [content])
    if "\0" in lines[0]:
        return Sources(["-"], [content])
    return Sources(lines, [Path(line) for line in lines])


class Inputs(LightningDataModule):
    """Batches of raw inputs, read as the data of a run reads them; its own files are not needed.

    Args:
        data: what reads them.
        sources: the inputs.
        whole: leave images in the size of their files.

    Raises:
        UserError: the data has no method `read`, or always changes the size.
    """

    def __init__(self, data: Any, sources: Sources, whole: bool = False) -> None:
        super().__init__()
        if data is None or not _is_written(data, "read"):
            raise HowTo(MISSING.format(name="the model alone" if data is None else type(data).__name__))
        if whole and "resize" not in signature(data.read).parameters:
            raise UserError(f"--tile: {type(data).__name__}.read has no parameter resize, so it changes every size")
        self.data = data
        self.sources = sources
        self.dataset = _Unread(data, sources, {"resize": False} if whole else {})
        self.whole = whole

    def predict_dataloader(self) -> DataLoader:
        if not isinstance(self.data, Data):
            collate = getattr(self.data, "collate", None) or default_collate
            return DataLoader(self.dataset, batch_size=getattr(self.data, "batch_size", 1), collate_fn=collate)
        self.data.trainer = self.trainer  # which says how many processes share the work
        return self.data.input_loader(self.dataset, batch_size=1 if self.whole else None)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return self.data.transfer_batch_to_device(batch, device, dataloader_idx)


class _Unread(Dataset):
    """Samples that are read when they are asked for."""

    def __init__(self, data: Any, sources: Sources, options: dict[str, Any]) -> None:
        self.data = data
        self.names = sources.names
        self.files = ["standard input" if isinstance(place, bytes) else place for place in sources.places]
        self.places = sources.places
        self.options = options

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Any:
        source = self.places[index]
        if _is_written(self.data, "unlabelled"):
            return self.data.unlabelled(source, **self.options)
        return self.data.read(source, **self.options), -1


def _is_written(data: Any, method: str) -> bool:
    """Whether a data module has a method of its own; the base's `unlabelled` counts, its empty `read` does not."""
    own = getattr(type(data), method, None)
    return callable(own) and (method != "read" or own is not Data.read)
