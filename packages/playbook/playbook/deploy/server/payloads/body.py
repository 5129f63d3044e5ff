"""What a request sends, and what is found in it."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from playbook.deploy.server.limits import RefusalError

NO_CHARSETS = (
    "idna",
    "punycode",
    "unicode-escape",
    "raw-unicode-escape",
    "undefined",
)  # of Python's source, or of hosts


@dataclass
class Payload:
    """What a request asks for.

    Args:
        sources: what `read` takes, one for each input.
        options: of the answers.
        files: names of the files that the sources were sent as, if they were.
        num_pixels: of the largest image.
    """

    sources: list[Any]
    options: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    num_pixels: int = 0

    def name_of(self, number: int) -> str:
        """What messages call a source."""
        if len(self.files) == len(self.sources) and self.files[number]:
            return self.files[number]
        return f"input {number}" if len(self.sources) > 1 else "the input"


@dataclass(frozen=True)
class Body:
    """The body of a request with what says how to read it.

    Args:
        content: its bytes.
        media_type: without parameters, in lower case.
        parameters: of the media type, such as the boundary of a form.
    """

    content: bytes
    media_type: str
    parameters: Mapping[str, str]

    @property
    def text(self) -> str:
        """Its text, in the charset that the media type names.

        Raises:
            RefusalError: it is none.
        """
        return text_of(self.content, self.parameters.get("charset", "").strip())


def refuse(status: int, text: str) -> NoReturn:
    """Raises the refusal of a request."""
    raise RefusalError(status, text)


def text_of(content: bytes, charset: str = "") -> str:
    """Decodes a text.

    Args:
        content: its bytes.
        charset: as a media type names it. Defaults to UTF-8.

    Raises:
        RefusalError: the charset is unknown, or the text is in another one.
    """
    name = codec_of(charset) if charset else "utf-8-sig"
    try:
        text = content.decode(name)
        text.encode()
    except UnicodeDecodeError as error:
        refuse(400, f"the text is not {charset.upper() or 'UTF-8'}: byte {error.start} cannot be decoded")
    except UnicodeEncodeError:
        refuse(400, f"the text is not {charset.upper()}: it has half of a surrogate pair")
    return text


def codec_of(charset: str) -> str:
    """The codec of Python for a charset.

    Raises:
        RefusalError: there is none.
    """
    try:
        codec = codecs.lookup(charset)
    except (LookupError, ValueError):  # also of names that no file may have
        codec = None
    if codec is None or codec.name in NO_CHARSETS or not getattr(codec, "_is_text_encoding", True):
        refuse(415, f"charset {charset[:40]}: is not known here, expected one such as utf-8 or iso-8859-1")
    return "utf-8-sig" if codec.name == "utf-8" else codec.name
