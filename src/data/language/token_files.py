"""Large texts as files of tokens: written by several processes, resumed after a kill, and never loaded whole."""

import json
import multiprocessing
import os
import shutil
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from playbook import UserError, guess_encoding, parse_json
from src.ops.vocabularies import Vocabulary, describe, fingerprint, vocabulary_from

VERSION = 1  # of the files; others are refused
SPLITS = ("train", "val", "test")
PART_BYTES = 2**23  # of text that a process tokenises at a time; a kill loses at most this
CHECKED_BYTES = 2**30  # larger files are checked by their size alone: a checksum takes about a second a GiB


class Span(NamedTuple):
    """Bytes start to end of a file; `split` is None if each document is assigned to a split on its own."""

    file: str
    start: int
    end: int
    split: str | None
    ends_document: bool


class TokenFile:
    """Tokens (N,) in a file, read on access.

    Args:
        path: the file.
        dtype: type of the tokens in it.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._num_tokens = path.stat().st_size // self.dtype.itemsize

    def __len__(self) -> int:
        return self._num_tokens

    def __getitem__(self, places: slice | np.ndarray) -> np.ndarray:
        return self._map[places]

    @cached_property
    def _map(self) -> np.ndarray:
        if not self._num_tokens:  # an empty file cannot be mapped
            return np.empty(0, self.dtype)
        return np.memmap(self.path, self.dtype, mode="r")

    def __getstate__(self) -> dict[str, Any]:
        # a pickled map would be all of the file
        return {name: value for name, value in self.__dict__.items() if name != "_map"}


def plan_parts(files: Sequence[tuple[Path, str | None]], shares: Sequence[float]) -> list[list[Span]]:
    """Cuts texts into parts of about 8 MiB, at the ends of lines.

    Args:
        files: each with its split. A single text file without a split is divided by `shares`, in order, at the ends of
            lines; each document of a .jsonl file is assigned on its own.
        shares: of train, val and test.
    """
    spans: list[Span] = []
    for file, split in files:
        size = file.stat().st_size
        if file.suffix == ".jsonl":
            spans += _spans(file, 0, size, None)
        elif split is not None:
            spans += _spans(file, 0, size, split)
        else:
            starts = [0, *(_line_end(file, round(size * sum(shares[: place + 1]))) for place in range(2)), size]
            for name, start, end in zip(SPLITS, starts, starts[1:], strict=False):
                spans += _spans(file, start, end, name)
    parts: list[list[Span]] = []
    room = 0
    for span in spans:
        length = span.end - span.start
        if length > room:
            parts.append([])
            room = max(PART_BYTES, length)
        parts[-1].append(span)
        room -= length
    return parts


def texts_of(part: Sequence[Span], shares: Sequence[float]) -> Iterator[tuple[str, str, bool]]:
    """Yields split, text and whether a document ends after it.

    Raises:
        UserError: a text is not UTF-8, or a line is not a JSON object with `text`.
    """
    for span in part:
        with open(span.file, "rb") as file:
            file.seek(span.start)
            content = file.read(span.end - span.start)
        if span.split is not None:
            yield span.split, _decoded(content, span.file, span.start), span.ends_document
            continue
        place = span.start
        for line in content.split(b"\n"):
            if line.strip():
                draw = zlib.crc32(f"{Path(span.file).name}:{place}".encode()) / 2**32
                split = SPLITS[sum(draw >= sum(shares[: number + 1]) for number in range(2))]
                yield split, _document(line, span.file, place), True
            place += len(line) + 1


def encode_text(vocabulary: Vocabulary, text: str, file: Path) -> list[int]:
    """Tokens of a text.

    Raises:
        UserError: a character is not in the vocabulary; it names the file.
    """
    try:
        return vocabulary.encode(text)
    except UserError as error:
        raise UserError(f"--data.root: {file.as_posix()}: {error}") from error


def write_tokens(
    folder: Path, parts: Sequence[Sequence[Span]], shares: Sequence[float], vocabulary: Vocabulary
) -> None:
    """Tokenises texts, in as many processes as there are cores; skips parts that are already finished.

    A killed process loses only its current part. The files do not depend on the number of interruptions and processes.

    Args:
        folder: where the files are written.
        parts: as returned by `plan_parts`.
        shares: of train, val and test.
        vocabulary: makes the tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rest = [number for number in range(len(parts)) if not _done(folder, number).exists()]
    jobs = [(folder, number, parts[number], shares, vocabulary.plain()) for number in rest]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_processes = min(cores, len(jobs))
    if num_processes > 1:
        # spawned: a fork would copy the threads' locks of torch and of the tokenizer
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(num_processes, context, initializer=_end_with_parent) as pool:
            list(pool.map(_write_part, jobs))
    else:
        for job in jobs:
            _write_part(job)
    size = np.dtype(_dtype(vocabulary)).itemsize
    joined = {split: _join(folder, len(parts), split) for split in SPLITS}
    manifest = {
        "version": VERSION,
        "dtype": _dtype(vocabulary),
        "fingerprint": fingerprint(vocabulary),
        "tokenizer": vocabulary.plain(),
        "splits": {split: (num_bytes // size, checksum) for split, (num_bytes, checksum) in joined.items()},
    }
    _write(folder / "tokens.json", json.dumps(manifest).encode())
    shutil.rmtree(folder / "parts")


def open_tokens(folder: Path, vocabulary: Vocabulary | None = None) -> tuple[Vocabulary, dict[str, TokenFile]]:
    """Opens the files of `write_tokens`.

    Args:
        folder: that contains them.
        vocabulary: the one that they must have been written with; any if None.

    Raises:
        UserError: a file is missing, truncated or damaged, or has tokens of another vocabulary.
    """
    again = f"delete {folder.as_posix()} to write it again"
    try:
        manifest = json.loads((folder / "tokens.json").read_bytes())
        if manifest["version"] != VERSION:
            raise UserError(f"{folder.as_posix()}: is of version {manifest['version']}, expected {VERSION}; {again}")
        own = vocabulary_from(manifest["tokenizer"])
        splits, dtype = manifest["splits"], np.dtype(manifest["dtype"])
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{folder.as_posix()}/tokens.json: cannot be read ({type(error).__name__}: {error}); {again}"
        raise UserError(text) from error
    if vocabulary is not None and fingerprint(vocabulary) != fingerprint(own):
        raise UserError(
            f"{folder.as_posix()}: has tokens of {describe(own)}, but the checkpoint has {describe(vocabulary)}; "
            "expected the same vocabulary"
        )
    files = {}
    for split, (num_tokens, checksum) in splits.items():
        path = folder / f"{split}.bin"
        size = path.stat().st_size if path.is_file() else 0
        if size != num_tokens * dtype.itemsize:
            expected = num_tokens * dtype.itemsize
            raise UserError(f"{path.as_posix()}: has {size:,} bytes, expected {expected:,}: it is truncated; {again}")
        if size <= CHECKED_BYTES and _checksum(path) != checksum:
            raise UserError(f"{path.as_posix()}: is damaged: its checksum has changed; {again}")
        files[split] = TokenFile(path, dtype.str)
    return own, files


def _spans(file: Path, start: int, end: int, split: str | None) -> Iterator[Span]:
    while start < end:
        stop = _line_end(file, start + PART_BYTES) if end - start > PART_BYTES else end
        stop = min(stop, end)
        yield Span(str(file), start, stop, split, stop == end)
        start = stop


def _line_end(file: Path, place: int) -> int:
    """First byte after the end of a line, from a byte on; in lines above 1 MiB, of a character, except in .jsonl."""
    with file.open("rb") as stream:
        stream.seek(place)
        if file.suffix == ".jsonl":
            return place + len(stream.readline())
        line = stream.readline(2**20)
    if line.endswith(b"\n"):
        return place + len(line)
    inside = 0
    while inside < len(line) and line[inside] & 0xC0 == 0x80:  # a later byte of a character
        inside += 1
    return place + inside


def _decoded(content: bytes, file: str, start: int) -> str:
    try:
        return content.decode("utf-8-sig" if start == 0 else "utf-8")
    except UnicodeDecodeError as error:
        line = _line_of(file, start) + content.count(b"\n", 0, error.start)
        other = guess_encoding(content[max(0, error.start - 2**16) : error.start + 2**16])
        raise UserError(
            f"--data.root: {Path(file).as_posix()}: is not text in UTF-8 at byte {start + error.start:,}, in line "
            f"{line:,}; expected UTF-8, as from iconv -f {other} -t utf-8"
        ) from error


def _document(line: bytes, file: str, place: int) -> str:
    text = _decoded(line, file, place)
    try:
        row = parse_json(text)
        if isinstance(row, Mapping) and isinstance(row.get("text"), str):
            return row["text"]
        problem = f'expected a JSON object with text, as in {{"text": "…"}}, got {row!r:.60}'
    except ValueError as error:
        problem = f"is not valid JSON: {error}"
    raise UserError(f"--data.root: {Path(file).as_posix()}:{_line_of(file, place)}: {problem}")


def _line_of(file: str, place: int) -> int:
    """Line of a byte; counted only where a line is wrong."""
    with open(file, "rb") as stream:
        return sum(stream.read(min(2**20, place - at)).count(b"\n") for at in range(0, place, 2**20)) + 1


def _write_part(job: tuple[Path, int, Sequence[Span], Sequence[float], dict[str, Any]]) -> None:
    folder, number, part, shares, plain = job
    vocabulary = vocabulary_from(plain)
    end = [] if vocabulary.end is None else [vocabulary.end]
    rows: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
    for span in part:
        for split, text, ends_document in texts_of([span], shares):
            tokens = encode_text(vocabulary, text, Path(span.file))
            rows[split].append(np.array(tokens + end * ends_document, _dtype(vocabulary)))
    done = _done(folder, number)
    done.parent.mkdir(parents=True, exist_ok=True)
    for split, arrays in rows.items():
        _write(done.with_suffix(f".{split}"), b"".join(array.tobytes() for array in arrays))
    _write(done, b"")  # last: it says that the others are whole


def _done(folder: Path, number: int) -> Path:
    return folder / "parts" / f"{number:06}.done"


def _join(folder: Path, num_parts: int, split: str) -> tuple[int, int]:
    """Puts the parts of a split into one file; returns its size in bytes and its checksum."""
    path, checksum, num_bytes = folder / f"{split}.bin", 0, 0
    beside = path.with_suffix(".unfinished")
    with beside.open("wb") as file:
        for number in range(num_parts):
            content = _done(folder, number).with_suffix(f".{split}").read_bytes()
            checksum = zlib.crc32(content, checksum)
            num_bytes += len(content)
            file.write(content)
    beside.replace(path)
    return num_bytes, checksum


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.unfinished")
    beside.write_bytes(content)
    beside.replace(path)


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _dtype(vocabulary: Vocabulary) -> str:
    return "<u2" if vocabulary.size <= 2**16 else "<u4"


def _end_with_parent() -> None:
    """Ends a process when the one that started it is killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
