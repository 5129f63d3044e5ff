"""Reads texts, rows, prompts and conversations as tokens."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError, Sample, shorten
from .vocabularies import Vocabulary, load_vocabulary

MASK = "<mask>"  # in a text, a word to fill in
ROLES = ("system", "user", "assistant", "tool")
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # in JSON; two of them make a character
# fields of a CSV: quoted in any lines, quoted in one line with more behind the quote, or not quoted
FIELD = r'(?:"[^"]*(?:""[^"]*)*"(?=[,\r\n]|\Z)|"[^"\r\n]*(?:""[^"\r\n]*)*"[^",\r\n][^,\r\n]*|(?!")[^,\r\n]*)'
WHOLE_ROW = rf"{FIELD}(?:,{FIELD})*(?:\r\n?|\n)?"
LISTS = (".csv", ".tsv", ".jsonl", ".txt")  # files of many inputs
LARGEST_FIELD = 2**31 - 1  # of a CSV, in characters; Python stops at 131,072 by itself


class TextReader:
    """Reads a source as the manifest's `preprocessing` says.

    Args:
        plan: `kind`, text, masked_text, prompt or chat; `columns` of a row that hold a text, the first one counts;
            `tokenizer`; `max_length` or `context_length` in tokens; for text, the `frame` of tokens around it.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.vocabulary: Vocabulary = load_vocabulary(plan["tokenizer"])
        self._read = {
            "text": self._text,
            "masked_text": self._masked_text,
            "prompt": self._prompt,
            "chat": self._chat,
        }[plan["kind"]]

    def __call__(self, source: Any) -> Sample:
        """Reads a text, a row, or the path or bytes of a file in UTF-8: tokens (T,) and, unless a prompt, mask (T,).

        Raises:
            InputError: there is no such column, no text in it, or a text without tokens.
        """
        tokens = np.array(self._read(source), dtype=np.int64)
        is_prompt = self.plan["kind"] in ("prompt", "chat")
        return Sample({"tokens": tokens} if is_prompt else {"tokens": tokens, "mask": np.ones(len(tokens), dtype=bool)})

    def sources(self, file: Path) -> list[Any]:
        """The texts or rows in a list of them, or the file itself.

        Raises:
            InputError: the list is empty or cannot be read.
        """
        return rows_of(file, self.plan["columns"], self.plan.get("header", True))

    def _text(self, source: Any) -> list[int]:
        text = text_of(source, self.plan["columns"])
        if not text.strip():
            raise InputError("the text is empty")
        tokens = self.vocabulary.encode(text)
        if not tokens:
            raise InputError(f"the text {text!r:.40} has no token, expected a word or sign")
        before, behind = self.plan.get("frame") or ([], [])
        room = max(self.plan["max_length"] - len(before) - len(behind), 1)
        return [*before, *tokens[:room], *behind]

    def _masked_text(self, source: Any) -> list[int]:
        first, *others = text_of(source, self.plan["columns"]).split(MASK)
        tokens = self.vocabulary.encode(first)
        for part in others:
            tokens += [self.vocabulary.special[MASK], *self.vocabulary.encode(part)]
        if not tokens:
            raise InputError("the text is empty")
        return tokens[: self.plan["max_length"]]

    def _prompt(self, source: Any) -> list[int]:
        return self._checked(self.vocabulary.encode(text_of(source, self.plan["columns"])))

    def _chat(self, source: Any) -> list[int]:
        """The plain template, up to where the assistant's turn begins."""
        if isinstance(source, Mapping) and "messages" in source:
            messages = _messages(source["messages"])
            if tools := source.get("tools"):
                tools = _json(tools) if isinstance(tools, str) else tools
                messages = [{"role": "tools", "content": _valid(json.dumps(tools, ensure_ascii=False))}, *messages]
        else:
            messages = [{"role": "user", "content": text_of(source, self.plan["columns"])}]
        encode = self.vocabulary.encode
        end = encode("\n\n") if self.vocabulary.end is None else [self.vocabulary.end]
        tokens: list[int] = []
        for message in messages:
            tokens += [*encode(f"{message['role'].capitalize()}:"), *encode(f" {message['content']}"), *end]
        return self._checked([*tokens, *encode("Assistant:")])

    def _checked(self, tokens: list[int]) -> list[int]:
        if not tokens:
            raise InputError("the prompt is empty, expected at least one token")
        return tokens


def text_of(source: Any, columns: Sequence[str]) -> str:
    """The text of a source: a text, a row that has one of the columns, or the path or bytes of a file in UTF-8.

    Raises:
        InputError: there is none.
    """
    if isinstance(source, Mapping):
        column = next((column for column in columns if column in source), None)
        if column is None:
            has = ", ".join(map(str, source)) or "none"
            raise InputError(f"expected a column {' or '.join(columns)}, got {has}")
        if not isinstance(source[column], str):
            raise InputError(f"{column}: expected text, got {shorten(source[column])}")
        return _valid(source[column])
    if isinstance(source, str):
        return _valid(source)
    if isinstance(source, bytes | bytearray):
        return _decoded(bytes(source))
    if not isinstance(source, Path):
        raise InputError(f"expected a text, a row or a file, got {shorten(source)}")
    return _decoded(_content(source))


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"is not text: it has half of a surrogate pair at character {error.start}") from error
    return text


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file.as_posix()}: {error.strerror}") from error


def _decoded(content: bytes, encoding: str = "utf-8") -> str:
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeError as error:
        raise InputError(f"is not text in {encoding.upper()}: {error}") from error


def _messages(value: Any) -> list[dict[str, str]]:
    if isinstance(value, str):  # in a table, JSON within a field
        value = _json(value)
    if not isinstance(value, list) or not value:
        raise InputError(f"messages: expected a list of at least one message, got {shorten(value)}")
    for number, message in enumerate(value, start=1):
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise InputError(f"messages: message {number}: expected a role of {', '.join(ROLES)}")
    messages = [
        {"role": message["role"], "content": _content_of(message, f"messages: message {number}: content")}
        for number, message in enumerate(value, start=1)
    ]
    if value[-1]["role"] == "assistant":
        raise InputError("messages: the last one is the assistant's, expected a message to answer")
    return messages


def _content_of(message: Mapping[str, Any], place: str) -> str:
    """Text of a message, which may be a list of parts, and behind it the tools that it calls, as lines of JSON."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(_text_of_part(part, place) for part in content)
    if content is None and message["role"] == "assistant":
        content = ""
    if not isinstance(content, str):
        raise InputError(f"{place}: expected text, got {shorten(content)}")
    listed = message.get("tool_calls") or []
    calls = [*(listed if isinstance(listed, list) else [listed]), *filter(None, [message.get("function_call")])]
    calls = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    lines = [content] if content else []
    return _valid("\n".join([*lines, *(json.dumps(call, ensure_ascii=False) for call in calls)]))


def _text_of_part(part: Any, place: str) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
    if not isinstance(text, str):
        raise InputError(f"{place}: expected parts of the type text, got {shorten(part)}")
    return text


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {error}") from error
    return value


def rows_of(
    file: Path,
    columns: Sequence[str],
    header: bool = True,
    separator: str | None = None,
    quotes: bool = True,
    encoding: str = "utf-8",
) -> list[Any]:
    """The inputs in a list of texts: lines of a .txt or .jsonl, rows of a .csv or .tsv; the file itself otherwise.

    Args:
        file: the list.
        columns: names of the columns of texts.
        header: whether the first row of a table always names its columns. If false, it does so only if it has one of
            `columns`; otherwise they are named 1, 2, ….
        separator: character between the fields of a table. Defaults to the comma for .csv and the tab for .tsv.
        quotes: whether quotes enclose fields of a .csv; otherwise they are text, as in a .tsv.
        encoding: of the text.

    Raises:
        InputError: it is empty, in another encoding, or not valid CSV or JSON.
    """
    suffix = file.suffix.lower()
    if suffix not in LISTS:
        return [file]
    text = _decoded(_content(file), encoding)
    if suffix in (".csv", ".tsv"):
        separator = separator or (",", "\t")[suffix == ".tsv"]
        fields = _csv_rows(text, separator) if suffix == ".csv" and quotes else _plain_rows(text, separator)
        rows: list[Any] = list(_table(list(fields), None if header else columns))
    else:
        lines = [line for line in text.split("\n") if line.strip()]  # not splitlines: JSON may hold other separators
        rows = [_json(line) if suffix == ".jsonl" else line.rstrip("\r") for line in lines]
    if not rows:
        raise InputError(f"{file.as_posix()}: the list is empty")
    return rows


def _table(rows: Sequence[list[str]], known: Sequence[str] | None) -> Iterator[dict[str, str]]:
    if not rows:
        return
    columns, rest = [column.strip() for column in rows[0]], iter(rows[1:])
    if known is not None and not set(columns) & {name for name in known if not name.isdecimal()}:
        columns, rest = [str(number) for number in range(1, len(columns) + 1)], chain(rows[:1], rest)
    for fields in rest:
        pairs = zip_longest(columns, fields[: len(columns)], fillvalue="")
        yield {column: value for column, value in pairs if column}


def _csv_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Rows of a CSV; a quote that is not closed where a field ends would swallow others."""
    csv.field_size_limit(LARGEST_FIELD)
    lines = io.StringIO(text, newline="").readlines()
    reader, start = csv.reader(lines, delimiter=separator), 0
    whole_row = re.compile(WHOLE_ROW.replace(",", re.escape(separator)))
    try:
        for fields in reader:
            end = reader.line_num
            if (end - start > 1 or end == len(lines)) and not whole_row.fullmatch("".join(lines[start:end])):
                raise InputError(f"the quote that opens a field in line {start + 1} is not closed")
            if fields:
                yield fields
            start = end
    except csv.Error as error:
        raise InputError(f"is no valid CSV: {error}") from error


def _plain_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Rows of one line each, whatever quotes they contain."""
    for line in text.split("\n"):
        if line.strip():
            yield [_unquoted(field) for field in line.rstrip("\r").split(separator)]


def _unquoted(field: str) -> str:
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else field
