"""Arrays in .npy and .npz files, without pickle."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads.body import Body, Payload, refuse

NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
BYTES_PER_MEMBER = 2**30  # more than any body may have; only to refuse what a header claims
OBJECTS = "the array: expected numbers, got Python objects, which are never unpickled"


def from_array(body: Body, served: Served, limits: Limits) -> Payload:
    """Arrays of one sample, or of several along their first dimension."""
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
