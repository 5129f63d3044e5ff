"""Finds the inputs in a body by its media type, or where that says nothing, by how it begins."""

from collections.abc import Callable, Mapping

from playbook.deploy.runtime.artefact import Kind
from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads.arrays import NPY, ZIP, from_array
from playbook.deploy.server.payloads.body import Body, Payload, refuse, text_of
from playbook.deploy.server.payloads.forms import form_parts
from playbook.deploy.server.payloads.images import check_image
from playbook.deploy.server.payloads.json_body import from_json, from_lines
from playbook.deploy.server.payloads.options import checked_options, typed
from playbook.deploy.server.payloads.tables import from_table

KIND_NAMES: dict[Kind, str] = {
    "image": "an image: the file as the body, a multipart form of files, or base64 text in JSON",
    "audio": "a recording: the file as the body, a multipart form of files, or base64 text in JSON",
    "text": "a text: as text/plain, rows of text/csv, or JSON",
    "prompt": "a prompt: as text/plain, rows of text/csv, or JSON",
    "row": "a row: as an object in JSON, or as text/csv with the names of its columns",
    "tensor": "an array: as .npy or .npz, rows of text/csv, or nested lists in JSON",
}

Reader = Callable[[Body, Served, Limits], Payload]


def parse(body: Body, query: Mapping[str, str], served: Served, limits: Limits) -> Payload:
    """Finds inputs and options in a request.

    Args:
        body: of the request.
        query: parameters in the address; options of the answers.
        served: the model.
        limits: what is accepted at most.

    Raises:
        RefusalError: the body is not what its type says, or not what the model takes.
    """
    if not body.content.strip():
        refuse(400, f"the body is empty, expected {KIND_NAMES[served.kind]}")
    payload = _reader_of(body, served)(body, served, limits)
    if not payload.sources:
        refuse(422, "inputs: expected at least one, got none")
    if len(payload.sources) > limits.max_queue:
        refuse(413, f"inputs: expected at most {limits.max_queue}, got more")
    payload.options = checked_options({**typed(query, served.options), **payload.options}, served.options, limits)
    if served.kind == "image":
        payload.num_pixels = max(
            check_image(source, limits.max_pixels, payload.name_of(number), served.may_reduce)
            for number, source in enumerate(payload.sources)
        )
    return payload


def _reader_of(body: Body, served: Served) -> Reader:
    """What reads a body: by its media type, or where that says nothing, by how it begins."""
    kind, media_type = served.kind, body.media_type
    if media_type in ("", "application/octet-stream", "application/x-www-form-urlencoded"):
        return _sniffed(body.content, kind)
    if media_type == "application/json" or media_type.endswith("+json"):
        return from_json
    readers: dict[str, Reader] = {"multipart/form-data": _from_form}
    if kind in ("image", "audio") and media_type.startswith(f"{kind}/"):
        return _from_file
    if kind in ("text", "prompt"):
        readers["text/plain"] = _from_text
    if kind in ("text", "prompt", "row"):
        readers["application/x-ndjson"] = from_lines
    if kind == "tensor":
        readers |= dict.fromkeys(("application/x-npy", "application/x-npz", "application/zip"), from_array)
    if kind not in ("image", "audio"):
        readers |= {"text/csv": from_table, "text/tab-separated-values": from_table}
    if media_type not in readers:
        refuse(415, f"Content-Type {media_type[:80]}: the model takes {KIND_NAMES[kind]}")
    return readers[media_type]


def _sniffed(content: bytes, kind: Kind) -> Reader:
    if content.startswith((NPY, ZIP)) and kind == "tensor":
        return from_array
    if content.lstrip()[:1] in (b"{", b"["):
        return from_json
    return {"image": _from_file, "audio": _from_file, "tensor": from_array, "row": from_table}.get(kind, _from_text)


def _from_file(body: Body, served: Served, limits: Limits) -> Payload:
    return Payload([body.content])


def _from_text(body: Body, served: Served, limits: Limits) -> Payload:
    return Payload([body.text])


def _from_part(file: str, body: Body, served: Served, limits: Limits) -> Payload:
    try:
        return _reader_of(body, served)(body, served, limits)
    except RefusalError as error:
        raise RefusalError(error.status, f"{file}: {error.text}" if file else error.text) from error


def _from_form(body: Body, served: Served, limits: Limits) -> Payload:
    """Files of a form are inputs; its fields are options, or texts."""
    payload = Payload([])
    for part in form_parts(body, limits.max_queue + 64):
        takes_texts = served.kind in ("text", "prompt")
        if not part.is_file and not (takes_texts and part.name in ("text", "prompt", "input")):
            payload.options |= typed({part.name: text_of(bytes(part.content))}, served.options)
        elif part.is_file:
            if not part.content:
                refuse(422, f"{part.name[:80]}: the file is empty")
            media_type = part.media_type if part.media_type.startswith("text/") else ""
            inner = Body(bytes(part.content), media_type, part.parameters)
            is_file = served.kind in ("image", "audio")
            part_payload = Payload([inner.content]) if is_file else _from_part(part.file, inner, served, limits)
            rows = (
                [f", row {number}" for number in range(1, len(part_payload.sources) + 1)]
                if len(part_payload.sources) > 1
                else [""]
            )
            payload.files += [f"{part.file}{row}" if part.file else "" for row in rows[: len(part_payload.sources)]]
            payload.sources += part_payload.sources
            payload.options |= part_payload.options
        else:
            payload.sources.append(text_of(bytes(part.content), part.parameters.get("charset", "")))
            payload.files.append("")
    return payload
