"""Texts in other charsets than UTF-8."""

import pytest

from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads import Body, parse
from playbook.testing.serving import Fake

CHARSETS = ("latin-1", "ISO-8859-1", "windows-1252", "utf-16", "UTF-8", "utf8", "koi8-r", "")


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("media_type", ["text/plain", "text/csv", "application/json", "application/x-ndjson"])
def test_texts_in_the_charset_that_is_named(charset: str, media_type: str) -> None:
    word = "größe" if charset != "koi8-r" else "мир"
    texts = {"text/plain": word, "text/csv": f"text\n{word}\n", "application/json": f'{{"input": "{word}"}}'}
    content = texts.get(media_type, f'"{word}"\n').encode(charset or "utf-8")
    payload = parse(Body(content, media_type, {"charset": charset} if charset else {}), {}, Fake("text"), Limits())
    assert payload.sources == [{"text": word} if media_type == "text/csv" else word]


@pytest.mark.parametrize("charset", ["klingon", "rot13", "base64", "idna", "unicode_escape", "../x", "a\0b", "x" * 500])
def test_unknown_charsets(charset: str) -> None:
    with pytest.raises(RefusalError, match=r"charset .*: is not known here, expected one such as utf-8") as refusal:
        parse(Body(b"a", "text/plain", {"charset": charset}), {}, Fake("text"), Limits())
    assert refusal.value.status == 415


@pytest.mark.parametrize(
    ("content", "charset", "sentence"),
    [
        (b"\xff", "utf-8", "the text is not UTF-8: byte 0 cannot be decoded"),
        (b"\xff", "", "the text is not UTF-8: byte 0 cannot be decoded"),
        (b"a\x81", "cp1252", "the text is not CP1252: byte 1 cannot be decoded"),
        (b"+2AA-", "utf-7", "the text is not UTF-7"),
    ],
)
def test_texts_in_another_charset(content: bytes, charset: str, sentence: str) -> None:
    with pytest.raises(RefusalError, match=sentence) as refusal:
        parse(Body(content, "text/plain", {"charset": charset}), {}, Fake("text"), Limits())
    assert refusal.value.status == 400


def test_the_charset_of_a_part() -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="text"\r\nContent-Type: text/plain; charset=latin-1\r\n\r\n'
    body = Body(head + "größe".encode("latin-1") + b"\r\n--x--\r\n", "multipart/form-data", {"boundary": "x"})
    assert parse(body, {}, Fake("text"), Limits()).sources == ["größe"]
