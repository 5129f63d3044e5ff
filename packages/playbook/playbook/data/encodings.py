"""Text of files in any encoding, and the encoding of files that are in another one than expected. Imports no torch."""

import codecs
import re

from playbook.errors import UserError

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16"}
MARKS |= {codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_BE: "utf-16"}  # UTF-32's begins with that of UTF-16
C1 = re.compile(rb"[\x80-\x9f]")  # control characters of Latin 1, which are quotes and dashes on Windows
LOOKED_AT = 2**16  # bytes of a file that tell whether it is in UTF-16 without a mark


def check_encoding(encoding: str) -> None:
    """Checks the value of an option `encoding`.

    Raises:
        ValueError: Python knows no such encoding of text.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        examples = "utf-8, utf-16, latin-1, cp1252, gb18030 or shift_jis"
        raise ValueError(f"encoding: expected an encoding such as {examples}, got {encoding}") from error


def decode_text(
    content: bytes, place: str, encoding: str = "utf-8", option: str = "--data.encoding", numbers_line: bool = True
) -> str:
    """Text of a file, without the mark of its encoding at its beginning.

    Args:
        content: bytes of the file.
        place: option and file, for messages.
        encoding: of the text; utf-8 may begin with a mark.
        option: option that sets the encoding; if empty, messages say how to convert the file.
        numbers_line: whether messages add the line to the place.

    Raises:
        UserError: it is not in that encoding; the message names the line, and the encoding that it seems to have.
    """
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    name = "UTF-8" if is_utf8 else encoding
    if is_utf8 and _without_mark(content):  # bytes of zero are valid UTF-8
        reason, line = "every second byte is zero", 1
    else:
        try:
            return content.decode("utf-8-sig" if is_utf8 else encoding)
        except UnicodeError as error:
            reason = getattr(error, "reason", str(error))
            line = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
    other = guess_encoding(content)
    remedy = f"{option} {other}" if option else f"UTF-8, as from iconv -f {other} -t utf-8"
    place = f"{place}:{line}" if numbers_line else place
    where = "" if numbers_line else f" in line {line}"
    raise UserError(f"{place}: is not text in {name}: {reason}{where}; expected {remedy}")


def guess_encoding(content: bytes) -> str:
    """The encoding that a text seems to have: by its mark, by its bytes of zero, or by what can be read."""
    by_mark = next((encoding for mark, encoding in MARKS.items() if content.startswith(mark)), None)
    if encoding := by_mark or _without_mark(content):
        return encoding
    for encoding in ("utf-8", "latin-1" if not C1.search(content) else "cp1252"):
        try:
            content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"


def _without_mark(content: bytes) -> str:
    """UTF-16 of a text without its mark, or nothing."""
    start = content[:LOOKED_AT]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, others = start[first::2], start[1 - first :: 2]
        if len(zeros) > 1 and zeros.count(0) > 0.7 * len(zeros) and not others.count(0):
            return encoding
    return ""


def zeros_in(text: str) -> str:
    """A line and a sentence about characters of code 0, which a text seldom has, or nothing."""
    place = text.find("\0")
    line = text.count("\n", 0, place) + 1
    return "" if place < 0 else f"{line}: contains a character of code 0, as damaged files do"
