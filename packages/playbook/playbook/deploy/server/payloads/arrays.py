"""Arrays in .npy and .npz files, without pickle."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from playbook.deploy.served import Served
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads.body import Body, Payload, refuse

NPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
BYTES_SHOWN = 2**30  # a header may claim numbers that fill a page
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of NumPy; zipfile unpacks others without a bound
DAMAGED = "the array is not a valid .npy file"
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
        batches = [_as_batch(array, known[name], limits.max_queue) for name, array in arrays.items()]
        if len({len(batch) for batch in batches}) > 1:
            refuse(422, f"arrays: expected as many samples in each, got {', '.join(str(len(b)) for b in batches)}")
        return Payload([dict(zip(arrays, sample, strict=True)) for sample in zip(*batches, strict=True)])
    array = load_npy(body.content)
    return Payload(_as_batch(array, inputs[0], limits.max_queue) if len(inputs) == 1 else [array])


def _as_batch(array: np.ndarray, entry: Mapping[str, Any], max_samples: int) -> list[np.ndarray]:
    """Samples of an array that may be a single one: it has one dimension less."""
    if array.ndim in (0, len(entry["shape"]) - 1):
        return [array]
    if len(array) > max_samples:
        refuse(413, f"inputs: expected at most {max_samples}, got {len(array)}")
    return list(array)


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
    except Exception as error:  # Python's own parser reads the header, and raises a dozen kinds
        raise RefusalError(400, DAMAGED) from error
    if dtype.kind not in "biuf":
        refuse(422, f"the array: expected numbers, got {dtype.kind!r} values" if dtype.kind != "O" else OBJECTS)
    data = content[file.tell() :]
    count = 1
    for side in shape:
        count *= side
    if count * dtype.itemsize != len(data):
        expected = count * dtype.itemsize
        text = f"{expected:,} bytes" if expected < BYTES_SHOWN else "a very large one"
        refuse(400, f"the array is truncated or too long: its header says {text}, the body has {len(data):,}")
    try:
        return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
    except ValueError as error:  # a negative side, too many of them, or an empty array of too many
        raise RefusalError(400, DAMAGED) from error


def load_npz(content: bytes, max_bytes: int) -> dict[str, np.ndarray]:
    """Reads the arrays of a .npz that unpack to no more than a body may have.

    Raises:
        RefusalError: it is no such file, or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > max_bytes:
                refuse(413, f"the .npz unpacks to more than {max_bytes:,} bytes")
            if any(member.compress_type not in PACKINGS for member in members):
                refuse(422, "the .npz: expected members that are stored or deflated")
            return {member.filename.removesuffix(".npy"): load_npy(_unpacked(archive, member)) for member in members}
    except RefusalError:
        raise
    except Exception as error:  # zipfile and its decompressors raise a dozen kinds
        raise RefusalError(400, "the arrays are not a valid .npz file") from error


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A member, at most as much as its entry says; `archive.read` first unpacks all that there is."""
    with archive.open(member) as file:
        return file.read(member.file_size)
