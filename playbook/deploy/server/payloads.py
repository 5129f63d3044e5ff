"""From the body of a request to the inputs in it: JSON, files, texts, rows, and arrays."""

import base64
import binascii
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from playbook.deploy.runtime.artefact import Kind
from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.errors import nearest

NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
JSON_KEYS = ("input", "inputs", "options")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # halves of a character in JSON, which is no text alone
BYTES_PER_MEMBER = 2**30  # more than any body may have; only to refuse what a header claims
KIND_NAMES: dict[Kind, str] = {
    "image": "an image: the file as the body, a multipart form of files, or base64 text in JSON",
    "text": "a text: as text/plain, rows of text/csv, or JSON",
    "prompt": "a prompt: as text/plain, rows of text/csv, or JSON",
    "tensor": "an array: as .npy or .npz, rows of text/csv, or nested lists in JSON",
}


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
        refuse(413, f"inputs: expected at most {limits.max_queue}, got {len(payload.sources)}")
    payload.options = checked_options({**_typed(query, served.options), **payload.options}, served.options, limits)
    if served.kind == "image":
        for number, source in enumerate(payload.sources):
            check_image(source, limits.max_pixels, f"input {number}: " if len(payload.sources) > 1 else "")
    return payload


def refuse(status: int, text: str) -> NoReturn:
    """Raises the refusal of a request."""
    raise RefusalError(status, text)


def _reader_of(body: Body, served: Served) -> Callable[[Body, Served, Limits], Payload]:
    """What reads a body: by its media type, or where that says nothing, by how it begins."""
    kind, media_type = served.kind, body.media_type
    if media_type in ("", "application/octet-stream", "application/x-www-form-urlencoded"):
        return _sniffed(body.content, kind)
    if media_type == "application/json" or media_type.endswith("+json"):
        return _from_json
    readers: dict[str, Callable[[Body, Served, Limits], Payload]] = {"multipart/form-data": _from_form}
    if kind == "image" and media_type.startswith("image/"):
        return _from_file
    if kind in ("text", "prompt"):
        readers |= {"text/plain": _from_text, "application/x-ndjson": _from_lines}
    if kind == "tensor":
        readers |= dict.fromkeys(("application/x-npy", "application/x-npz", "application/zip"), _from_array)
    if kind != "image":
        readers |= {"text/csv": _from_table, "text/tab-separated-values": _from_table}
    if media_type not in readers:
        refuse(415, f"Content-Type {media_type[:80]}: the model takes {KIND_NAMES[kind]}")
    return readers[media_type]


def _sniffed(content: bytes, kind: Kind) -> Callable[[Body, Served, Limits], Payload]:
    if content.startswith((NPY, ZIP)) and kind == "tensor":
        return _from_array
    if content.lstrip()[:1] in (b"{", b"["):
        return _from_json
    return {"image": _from_file, "tensor": _from_array}.get(kind, _from_text)


def _from_file(body: Body, served: Served, limits: Limits) -> Payload:
    return Payload([body.content])


def _from_text(body: Body, served: Served, limits: Limits) -> Payload:
    return Payload([_text(body.content)])


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(400, f"the text is not UTF-8: byte {error.start} cannot be decoded")


def _from_json(body: Body, served: Served, limits: Limits) -> Payload:
    content = parse_json(body.content)
    if not isinstance(content, dict) or not content.keys() & {"input", "inputs"}:
        refuse(422, 'the body: expected {"input": …} for one input, or {"inputs": […]} for several')
    if unknown := [key for key in content if key not in JSON_KEYS]:
        refuse(422, f"{unknown[0][:80]}: expected one of {', '.join(JSON_KEYS)}{nearest(unknown[0][:80], JSON_KEYS)}")
    if "input" in content and "inputs" in content:
        refuse(422, "input, inputs: expected only one of them")
    sources = [content["input"]] if "input" in content else content["inputs"]
    if not isinstance(sources, list):
        refuse(422, f"inputs: expected a list, got {_called(sources)}")
    options = content.get("options", {})
    if not isinstance(options, dict):
        refuse(422, f'options: expected an object such as {{"top": 3}}, got {_called(options)}')
    if len(sources) <= limits.max_queue:
        sources = [_from_value(source, served, number) for number, source in enumerate(sources)]
    return Payload(sources, options)


def _from_lines(body: Body, served: Served, limits: Limits) -> Payload:
    lines = [line for line in body.content.split(b"\n") if line.strip()]
    return Payload([_from_value(parse_json(line), served, number) for number, line in enumerate(lines)])


def parse_json(content: bytes) -> Any:
    """Reads JSON strictly: no NaN, no half characters, no endless depth.

    Raises:
        RefusalError: it is not that.
    """
    try:
        value = json.loads(_text(content), parse_constant=_no_number)
        if SURROGATE.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse(400, "the JSON contains half of a character (a lone surrogate), which is no text")
    except RecursionError:
        refuse(400, "the JSON is nested too deeply")
    except json.JSONDecodeError as error:
        refuse(400, f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except ValueError as error:  # an integer of thousands of digits
        refuse(400, f"the body is not valid JSON: {str(error).partition(';')[0]}")
    return value


def _no_number(name: str) -> NoReturn:
    refuse(400, f"the JSON contains {name}, expected finite numbers")


def _from_value(source: Any, served: Served, number: int) -> Any:
    """One input in JSON as what `read` takes."""
    if served.kind == "image":
        if not isinstance(source, str):
            refuse(422, f"input {number}: expected an image file as base64 text, got {_called(source)}")
        try:
            return base64.b64decode(re.sub(r"^data:[\w/+.-]+;base64,", "", source), validate=True)
        except (binascii.Error, ValueError):
            refuse(422, f"input {number}: is not base64")
    if served.kind in ("text", "prompt"):
        if not isinstance(source, str | dict):
            refuse(422, f"input {number}: expected a text, or a row as an object, got {_called(source)}")
        return source
    if not isinstance(source, list | dict | int | float):
        refuse(422, f"input {number}: expected numbers in nested lists, or an object of them, got {_called(source)}")
    return source


def _called(value: Any) -> str:
    """What a value is called in JSON."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _from_table(body: Body, served: Served, limits: Limits) -> Payload:
    delimiter = "\t" if body.media_type.startswith("text/tab") else ","
    try:
        rows = [row for row in csv.reader(io.StringIO(_text(body.content), newline=""), delimiter=delimiter) if row]
    except csv.Error as error:
        refuse(400, f"the table cannot be read: {error}")
    if len(rows) - 1 > limits.max_queue:
        refuse(413, f"rows: expected at most {limits.max_queue}, got {len(rows)}")
    if served.kind == "tensor":
        return Payload(_numbers_in(rows))
    header = [name.strip() for name in rows[0]] if rows else []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            refuse(422, f"row {number}: expected {len(header)} fields, as in the header, got {len(row)}")
    return Payload([dict(zip(header, row, strict=True)) for row in rows[1:]])


def _numbers_in(rows: list[list[str]]) -> list[list[float]]:
    """Rows of numbers; a first row of names is left out."""
    if rows and not any(_is_number(cell) for cell in rows[0]):
        rows = rows[1:]
    values = []
    for number, row in enumerate(rows, start=1):
        wrong = next((cell for cell in row if not _is_number(cell)), None)
        if wrong is not None:
            refuse(422, f"row {number}: expected numbers, got {wrong[:40]!r}")
        values.append([float(cell) for cell in row])
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_array(body: Body, served: Served, limits: Limits) -> Payload:
    inputs = served.manifest.get("inputs") or []
    if body.content.startswith(ZIP):
        arrays = load_npz(body.content, limits.max_body)
        if len(arrays) == 1 and len(inputs) == 1:
            arrays = {inputs[0]["name"]: next(iter(arrays.values()))}
        known = {entry["name"]: entry for entry in inputs}
        if set(arrays) != set(known):
            refuse(422, f"arrays: expected {', '.join(known)}, got {', '.join(arrays)[:200] or 'none'}")
        batches = [_as_batch(array, known[name]) for name, array in arrays.items()]
        if len({len(batch) for batch in batches}) > 1:
            refuse(422, f"arrays: expected as many samples in each, got {', '.join(str(len(b)) for b in batches)}")
        return Payload([dict(zip(arrays, sample, strict=True)) for sample in zip(*batches, strict=True)])
    array = load_npy(body.content)
    return Payload(list(_as_batch(array, inputs[0])) if len(inputs) == 1 else [array])


def _as_batch(array: np.ndarray, entry: Mapping[str, Any]) -> Sequence[np.ndarray]:
    """Samples of an array that may be a single one: it has one dimension less."""
    return [array] if array.ndim == len(entry["shape"]) - 1 else list(array) if array.ndim else [array]


def load_npy(content: bytes) -> np.ndarray:
    """Reads an array; the size that its header claims is compared with what is there before memory is taken.

    Raises:
        RefusalError: it is no array of numbers, or truncated.
    """
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        read_header: Any = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
        shape, is_fortran, dtype = read_header(file)
    except (ValueError, KeyError, SyntaxError, TypeError, RecursionError, MemoryError, EOFError):
        refuse(400, "the array is not a valid .npy file")
    if dtype.kind not in "biuf":
        refuse(422, f"the array: expected numbers, got {dtype.kind!r} values" if dtype.kind != "O" else OBJECTS)
    data = content[file.tell() :]
    if any(side < 0 for side in shape) or len(shape) > 32:
        refuse(400, "the array is not a valid .npy file")
    count = 1
    for side in shape:
        count *= side
    if count * dtype.itemsize != len(data):
        expected = count * dtype.itemsize
        text = f"{expected:,} bytes" if expected < BYTES_PER_MEMBER else "a very large one"
        refuse(400, f"the array is truncated or too long: its header says {text}, the body has {len(data):,}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


OBJECTS = "the array: expected numbers, got Python objects, which are never unpickled"


def load_npz(content: bytes, max_bytes: int) -> dict[str, np.ndarray]:
    """Reads the arrays of a .npz that unpack to no more than a body may have.

    Raises:
        RefusalError: it is no such file, or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(info.file_size for info in archive.infolist()) > max_bytes:
                refuse(413, f"the .npz unpacks to more than {max_bytes:,} bytes")
            return {name.removesuffix(".npy"): load_npy(archive.read(name)) for name in archive.namelist()}
    except RefusalError:
        raise
    except Exception as error:  # zipfile and its decompressors raise a dozen kinds
        raise RefusalError(400, "the arrays are not a valid .npz file") from error


def _from_form(body: Body, served: Served, limits: Limits) -> Payload:
    """Files of a form are inputs; its fields are options, or texts."""
    payload = Payload([])
    for part in form_parts(body, limits.max_queue + 64):
        takes_texts = served.kind in ("text", "prompt")
        if not part.is_file and not (takes_texts and part.name in ("text", "prompt", "input")):
            payload.options |= _typed({part.name: _text(bytes(part.content))}, served.options)
        elif part.is_file:
            if not part.content:
                refuse(422, f"{part.name[:80]}: the file is empty")
            media_type = part.media_type if part.media_type.startswith("text/") else ""
            inner = Body(bytes(part.content), media_type, {})
            if served.kind == "image":
                payload.sources.append(inner.content)
            else:
                found = _reader_of(inner, served)(inner, served, limits)
                payload.sources += found.sources
                payload.options |= found.options
        else:
            payload.sources.append(_text(bytes(part.content)))
    return payload


@dataclass
class Part:
    """One part of a form."""

    name: str = ""
    media_type: str = ""
    is_file: bool = False
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
        elif name.lower() == b"content-type":
            parts[-1].media_type = kind.decode("latin-1").lower()
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


def _typed(texts: Mapping[str, str], known: Mapping[str, type]) -> dict[str, Any]:
    """Options that came as text, with the types that they should have; what is not of its type stays text."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = known.get(name, str)(text)
        except ValueError:
            values[name] = text
    return values


def checked_options(options: Mapping[str, Any], known: Mapping[str, type], limits: Limits) -> dict[str, Any]:
    """Options with the right names and types; their ranges are known to the model.

    Raises:
        RefusalError: one is unknown, or of another type.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            names = f"expected one of {', '.join(known)}" if known else "this model has no options"
            refuse(422, f"{name[:80]}: {names}{nearest(name[:80], known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**31
        if not is_number or (known[name] is int and value != int(value)):
            kind = "a whole number" if known[name] is int else "a finite number"
            refuse(422, f"{name}: expected {kind}, got {value!r:.40}")
        values[name] = known[name](value)
    if values.get("max_new_tokens", 1) > limits.max_new_tokens:
        refuse(422, f"max_new_tokens: expected at most {limits.max_new_tokens}, got {values['max_new_tokens']}")
    return values


def check_image(content: bytes, max_pixels: int, place: str = "") -> None:
    """Refuses what is no image, and images of too many pixels, before they are decoded.

    Raises:
        RefusalError: it is one of these.
    """
    width, height = _image_size(content, place)
    if width * height > max_pixels:
        refuse(413, f"{place}the image has {width} × {height} pixels, expected at most {max_pixels:,} in all")


def _image_size(content: bytes, place: str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RefusalError(413, f"{place}the image has too many pixels") from error
    except Exception as error:  # a damaged file may raise anything
        if content[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):  # a TIFF that Pillow does not read
            return _tiff_size(content, place)
        raise RefusalError(422, f"{place}is not an image that can be read") from error


def _tiff_size(content: bytes, place: str) -> tuple[int, int]:
    try:
        from tifffile import TiffFile

        with TiffFile(io.BytesIO(content)) as file:
            return sum(page.size for page in file.pages), 1  # of all planes together
    except Exception as error:  # likewise; also where tifffile is not installed
        raise RefusalError(422, f"{place}is not an image that can be read") from error
