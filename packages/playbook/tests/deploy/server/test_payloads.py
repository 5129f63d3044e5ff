"""Bodies that are larger than they look, and files that are damaged where a library does not expect it."""

import contextlib
import io
import struct
import tracemalloc
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deploy.test_server import npy, png
from playbook.deploy.runtime import InputError
from playbook.deploy.server.limits import Limits, RefusalError
from playbook.deploy.server.payloads import Body, parse
from playbook.deploy.server.payloads.arrays import load_npy, load_npz
from playbook.testing.serving import Fake

LIMITS = Limits(max_queue=8, max_body_mib=4.0)


def npy_of(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """A .npy file with any text in place of its header."""
    text = header.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def bomb(kind: int, num_bytes: int, claimed: int) -> bytes:
    """A .npz whose member unpacks to more than its entries say."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr("x.npy", bytes(num_bytes))
    return file.getvalue().replace(struct.pack("<I", num_bytes), struct.pack("<I", claimed))


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_do_not_unpack_to_more_than_they_say(kind: int) -> None:
    content = bomb(kind, 30_000_000, 1000)
    tracemalloc.start()
    with pytest.raises(RefusalError):
        load_npz(content, LIMITS.max_body)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "media_type", "kind"),
    [
        (npy(np.zeros((400_000, 1), np.uint8)), "", "tensor"),
        (b"1\n" * 100_000, "text/csv", "tensor"),
        (b"text\n" * 100_000, "text/csv", "text"),
        (b"1\n" * 100_000, "application/x-ndjson", "text"),
        (b'""\n' * 100_000, "application/x-ndjson", "text"),
    ],
)
def test_many_small_inputs_are_counted_before_they_are_made(content: bytes, media_type: str, kind: Any) -> None:
    tracemalloc.start()
    with pytest.raises(RefusalError) as refusal:
        parse(Body(content, media_type, {}), {}, Fake(kind), LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refusal.value.status in (413, 422)
    assert peak < 8 * len(content), f"{peak:,} bytes for a body of {len(content):,}"


@pytest.mark.parametrize(
    "content",
    [
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1000000000000000000000000000000), }"),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }", b"12345678"),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 99999999999), }", b"1234"),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 70 + "), }", b"1234"),
        npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04."),
        npy_of("{'descr': '|V0', 'fortran_order': False, 'shape': (1,), }"),
        npy_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", b"1234"),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }", b"123"),
        npy_of("{'descr': "),
        npy_of("'''"),
        npy_of("(" * 3000),
        npy_of("  \n\t (\n"),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", b"123", version=2),
        npy_of("{}", version=3),
        npy_of("{}", version=200),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_damaged_arrays(content: bytes) -> None:
    with pytest.raises(RefusalError) as refusal:
        load_npy(content)
    assert refusal.value.status in (400, 422)
    with pytest.raises(RefusalError):
        parse(Body(content, "application/x-npy", {}), {}, Fake("tensor"), LIMITS)


def test_arrays_in_the_order_of_fortran() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(load_npy(npy(np.asfortranarray(array))), array)
    assert np.array_equal(load_npy(npy(array.astype(">f8"))), array)


@pytest.mark.parametrize(
    "disposition", [b"form-data", b"", b"form-data; name=", b'form-data; filename="a', b"\xff; name*=utf-8''%ff"]
)
def test_odd_parts_of_a_form(disposition: bytes) -> None:
    content = b"--x\r\nContent-Disposition: " + disposition + b"\r\n\r\na\r\n--x--\r\n"
    with pytest.raises(RefusalError) as refusal:
        parse(Body(content, "multipart/form-data", {"boundary": "x"}), {}, Fake("image"), LIMITS)
    assert refusal.value.status in (400, 422)


def test_an_image_that_unpacks_to_nothing_more() -> None:
    """The pixels of a PNG are bounded by its header, whatever its data unpacks to."""
    from playbook.deploy.runtime.images import read_image

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(100_000_000))
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    parse(Body(content, "image/png", {}), {}, Fake("image"), LIMITS)
    tracemalloc.start()
    with contextlib.suppress(InputError):
        read_image(content, {"kind": "image", "channels": 1, "steps": []}, "image")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_an_image_that_only_some_models_can_reduce() -> None:
    file = io.BytesIO()
    Image.new("RGB", (1600, 1000)).save(file, "JPEG")
    body, fake = Body(file.getvalue(), "image/jpeg", {}), Fake("image")
    assert parse(body, {}, fake, Limits(max_pixels=10**6)).num_pixels == 1_600_000
    fake.may_reduce = False
    with pytest.raises(RefusalError, match=r"the input has 1600 × 1000 pixels, expected at most 1,000,000"):
        parse(body, {}, fake, Limits(max_pixels=10**6))


def test_refusals_name_the_file() -> None:
    parts = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\n' + data + b"\r\n"
        for name, data in ((b"a.png", png()), (b"te  xt.jpg", b"no image"))
    )
    body = Body(parts + b"--x--\r\n", "multipart/form-data", {"boundary": "x"})
    with pytest.raises(RefusalError, match=r"^te xt.jpg is not an image that can be read$"):
        parse(body, {}, Fake("image"), LIMITS)
    with pytest.raises(RefusalError, match=r"^the input is not an image that can be read$"):
        parse(Body(b"no image", "image/png", {}), {}, Fake("image"), LIMITS)


def test_refusals_of_arrays_name_the_file() -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.npy"\r\n\r\n'
    body = Body(part + npy([1.0, 2.0])[:-1] + b"\r\n--x--\r\n", "multipart/form-data", {"boundary": "x"})
    with pytest.raises(RefusalError, match=r"^a\.npy: the array is truncated"):
        parse(body, {}, Fake("tensor"), LIMITS)
