"""What a request sends, and what is found in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from playbook.deploy.server.limits import RefusalError


@dataclass
class Payload:
    """What a request asks for.

    Args:
        sources: what `read` takes, one for each input.
        options: of the answers.
    """

    sources: list[Any]
    options: dict[str, Any] = field(default_factory=dict)


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


def refuse(status: int, text: str) -> NoReturn:
    """Raises the refusal of a request."""
    raise RefusalError(status, text)


def text_of(content: bytes) -> str:
    """Decodes UTF-8.

    Raises:
        RefusalError: it is something else.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(400, f"the text is not UTF-8: byte {error.start} cannot be decoded")
