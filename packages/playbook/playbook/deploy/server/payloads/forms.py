"""Parts of a form."""

from dataclasses import dataclass, field
from typing import Any

from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.payloads.body import Body, refuse

MOST_NAMED = 100  # characters of the name of a file


@dataclass
class Part:
    """One part of a form."""

    name: str = ""
    media_type: str = ""
    is_file: bool = False
    file: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    content: bytearray = field(default_factory=bytearray)


def form_parts(body: Body, max_parts: int) -> list[Part]:
    """Splits a form, in memory.

    Raises:
        RefusalError: it is malformed, truncated, or has too many parts.
    """
    from python_multipart.multipart import MultipartParser, parse_options_header

    parts: list[Part] = []
    headers: list[bytearray] = [bytearray(), bytearray()]  # name and value of the one that is being read
    state = {"ended": False}

    def begin() -> None:
        if len(parts) == max_parts:
            refuse(413, f"the form has more than {max_parts} parts")
        parts.append(Part())

    def end_header() -> None:
        name, value = (bytes(text) for text in headers)
        kind, options = parse_options_header(value)
        if name.lower() == b"content-disposition":
            parts[-1].name = options.get(b"name", b"").decode("utf-8", "replace")
            parts[-1].is_file = b"filename" in options
            parts[-1].file = " ".join(options.get(b"filename", b"").decode("utf-8", "replace").split())[:MOST_NAMED]
        elif name.lower() == b"content-type":
            parts[-1].media_type = kind.decode("latin-1").lower()
            parts[-1].parameters = {key.decode("latin-1"): text.decode("latin-1") for key, text in options.items()}
        for text in headers:
            text.clear()

    callbacks: Any = {
        "on_part_begin": begin,
        "on_part_data": lambda data, start, stop: parts[-1].content.extend(data[start:stop]),
        "on_header_field": lambda data, start, stop: headers[0].extend(data[start:stop]),
        "on_header_value": lambda data, start, stop: headers[1].extend(data[start:stop]),
        "on_header_end": end_header,
        "on_end": lambda: state.update(ended=True),
    }
    boundary = body.parameters.get("boundary", "")
    if not boundary:
        refuse(400, "Content-Type multipart/form-data: has no boundary")
    try:
        parser = MultipartParser(boundary.encode("latin-1", "replace"), callbacks)
        parser.write(body.content)
        parser.finalize()
    except RefusalError:
        raise
    except Exception as error:  # of the parser: it has classes of its own, and IndexError for some boundaries
        raise RefusalError(400, "the form is malformed") from error
    if not state["ended"]:
        refuse(400, "the form is truncated")
    return parts
