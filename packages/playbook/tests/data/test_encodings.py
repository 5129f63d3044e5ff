"""Text in other encodings than expected is refused with the encoding that reads it."""

import pytest

from playbook import UserError, check_encoding, decode_text, guess_encoding, zeros_in

TEXT = "text,label\nnaïve café,neg\n"


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-8-sig"), "utf-8"),
        (TEXT.encode("latin-1"), "latin-1"),
        ("“quoted” – text".encode("cp1252"), "cp1252"),
        (b"\x81 of no code page", "latin-1"),
        (TEXT.encode("utf-16"), "utf-16"),
        (TEXT.encode("utf-32"), "utf-32"),
        (TEXT.encode("utf-16-le"), "utf-16-le"),
        (TEXT.encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_the_guess_reads_the_text(content: bytes, encoding: str) -> None:
    assert guess_encoding(content) == encoding
    read = decode_text(content, "a.csv", encoding)
    assert read == TEXT if b"\x81" not in content and b"\x93" not in content else "text" in read or "of no" in read
    if encoding != "utf-8":
        with pytest.raises(
            UserError, match=rf"^a\.csv:\d: is not text in UTF-8: .*; expected --data\.encoding {encoding}$"
        ):
            decode_text(content, "a.csv")


def test_the_line_is_named() -> None:
    content = b"one\ntwo \xe9\n"
    with pytest.raises(
        UserError, match=r"^--input a\.txt: is not text in UTF-8: .* in line 2; expected UTF-8, as from icon"
    ):
        decode_text(content, "--input a.txt", option="", numbers_line=False)
    with pytest.raises(
        UserError, match=r"^a\.txt:2: is not text in ascii: ordinal not in range.* --data\.encoding latin-1"
    ):
        decode_text(content, "a.txt", "ascii")
    with pytest.raises(UserError, match=r"^a\.txt:1: is not text in utf-16: "):
        decode_text(b"odd", "a.txt", "utf-16")


def test_some_bytes_of_zero_are_text() -> None:
    assert decode_text(b"a\0b", "a.txt") == "a\0b"
    assert zeros_in("one\ntwo\0") == "2: contains a character of code 0, as damaged files do"
    assert not zeros_in("one")


def test_encodings_are_checked() -> None:
    check_encoding("Latin-1")
    for encoding in ("latin-99", "base64"):
        with pytest.raises(ValueError, match=f"encoding: expected an encoding such as utf-8, .*, got {encoding}"):
            check_encoding(encoding)
