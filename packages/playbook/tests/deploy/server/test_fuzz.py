"""Whatever a client sends, it gets a sentence, and the server goes on answering others as before."""

import base64
import contextlib
import csv
import io
import json
import random
import re
import socket
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from PIL import Image

from deploy.server.running import Running, request, running
from playbook.deploy.served import ServedArtefact
from playbook.deploy.server.limits import Limits
from playbook.testing.artefacts import write_artefact

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
LIMITS = Limits(max_queue=16, max_body_mib=0.25, body_timeout_s=1.0, timeout_s=10.0, max_pixels=1_000_000)
IMAGES, ARRAYS, TEXTS, ROWS = "/v1/models/m0", "/v1/models/m1", "/v1/models/m2", "/v1/models/m3"
PATHS = (IMAGES, ARRAYS, TEXTS, ROWS, f"{TEXTS}/stream", f"{ARRAYS}/versions/1")
TYPES = (
    *("", "application/json", "application/octet-stream", "application/x-npy", "application/zip", "image/png"),
    *("image/jpeg", "text/plain", "text/csv", "text/tab-separated-values", "application/x-ndjson", "text/html"),
    *("multipart/form-data", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", 'a;b="', "é/ü"),
)
INTERNALS = re.compile(r"Traceback|File \"|\.py\b|site-packages|playbook\.|numpy\.|object at 0x|/home|/tmp|/work")
FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def write_model(folder: Path, name: str, shape: list[Any], num_outputs: int) -> None:
    """Sums of all values of a sample, times 0, 1, 2, …"""
    from onnx import TensorProto, checker, helper, save

    numbers = helper.make_tensor("numbers", TensorProto.FLOAT, [1, num_outputs], list(range(num_outputs)))
    nodes = [
        helper.make_node("Flatten", [name], ["flat"]),
        helper.make_node("ReduceSum", ["flat", "axes"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["sum", "numbers"], ["logits"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", num_outputs])
    model = helper.make_model(
        helper.make_graph(nodes, "sums", [value], [logits], [axes, numbers]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    checker.check_model(model)
    folder.mkdir()
    save(model, folder / "model.onnx")


class Echo:
    """Reads as a language model's artefact does, and answers with the number of tokens."""

    def __init__(self, served: ServedArtefact) -> None:
        self.kind, self.manifest, self.read = served.kind, served.manifest, served.read
        self.options = {"max_new_tokens": int, "temperature": float}

    def answer_samples(self, samples: list[Any], **options: Any) -> list[dict[str, Any]]:
        return [{"count": len(sample.inputs["tokens"]), **options} for sample in samples]

    def stream(self, sample: Any, **options: Any) -> Iterator[str]:
        yield from ("one ", "two")

    def draw(self, source: Any, answer: dict[str, Any]) -> bytes | None:
        return None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("artefacts")
    write_model(root / "images", "image", ["B", 1, 8, 8], 3)
    write_model(root / "arrays", "x", ["B", 4], 2)
    write_model(root / "texts", "tokens", ["B", "T"], 2)
    images = write_artefact(
        root / "images",
        {"image": ("float32", ["B", 1, 8, 8])},
        ["logits"],
        file="model.onnx",
        preprocessing={"kind": "image", "channels": 1, "bits": 8, "steps": [{"resize": [8, 8]}]},
        postprocessing={"kind": "classes", "names": ["a", "b", "c"], "top": 2},
    )
    arrays = write_artefact(root / "arrays", {"x": ("float32", ["B", 4])}, ["logits"], file="model.onnx")
    reading = {"kind": "prompt", "columns": ["prompt"], "tokenizer": {"kind": "bytes"}, "context_length": 100}
    tokens = {"tokens": ("int64", ["B", "T"])}
    texts = write_artefact(root / "texts", tokens, ["logits"], file="model.onnx", preprocessing=reading)
    write_model(root / "rows", "numbers", ["B", 2], 2)
    number = {"kind": "number", "fill": 1.0, "indicates": False, "center": 0.0, "scale": 0.5}
    date = {**number, "kind": "date", "parts": ["time"]}
    rows = write_artefact(
        root / "rows",
        {"numbers": ("float32", ["B", 2])},
        ["logits"],
        file="model.onnx",
        preprocessing={
            "kind": "table",
            "columns": [{**number, "name": "age"}, {**date, "name": "born"}],
            "missing": [""],
        },
        postprocessing={"kind": "classes", "names": ["a", "b"]},
    )
    models = [ServedArtefact(images), ServedArtefact(arrays), Echo(ServedArtefact(texts)), ServedArtefact(rows)]
    with running(*models, limits=LIMITS) as server:
        yield server


def png(width: int = 8, height: int = 8, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width), np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def form(*parts: bytes, boundary: bytes = b"x") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + b"--\r\n"


FILE = b'Content-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
GOOD = {  # a request to each model, in different ways
    IMAGES: ("image/png", png()),
    ARRAYS: ("application/json", b'{"input": [1, 2, 3, 4]}'),
    TEXTS: ("text/plain", b"hello"),
    ROWS: ("application/json", b'{"input": {"age": 3, "born": "1970-01-02"}}'),
}
SEEDS = [
    *((IMAGES, "image/png", png(kind=kind)) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")),
    (IMAGES, "multipart/form-data; boundary=x", form(FILE + png(), FILE + png(kind="JPEG"))),
    (IMAGES, "application/json", json.dumps({"input": base64.b64encode(png()).decode()}).encode()),
    (ARRAYS, "application/x-npy", npy(np.ones((2, 4), np.float32))),
    (ARRAYS, "application/x-npy", npy(np.asfortranarray(np.ones((2, 4), np.float32)))),
    (ARRAYS, "application/x-npy", npy(np.array([{}, None], object))),
    (ARRAYS, "application/zip", npz(x=np.ones((2, 4), np.float32))),
    (ARRAYS, "text/csv", b'u,v,w,x\n1,2,3,4\n"5",6,7,8\n'),
    (ARRAYS, "application/json", b'{"inputs": [[1, 2, 3, 4], [0.5, 1e3, -1, 0]], "options": {}}'),
    (TEXTS, "text/csv", b'prompt,other\n"a ""quoted""\ntext",b\nc,d\n'),
    (TEXTS, "application/x-ndjson", b'"a"\n{"prompt": "b"}\n'),
    (TEXTS, "multipart/form-data; boundary=x", form(b'Content-Disposition: form-data; name="text"\r\n\r\nhello')),
    (ROWS, "application/json", b'{"inputs": [{"age": 3, "born": null}, {"age": "1e300", "born": "1970-01-02"}]}'),
    (
        ROWS,
        "application/x-ndjson",
        b'{"age": 3, "born": "0001-01-01"}\n{"age": 1e9, "born": "9999-12-31T23:59:59+00:01"}\n',
    ),
    (ROWS, "text/csv", b'born,age,x\n1970-01-02,"3",a\n,,""\n'),
    (f"{TEXTS}/stream", "application/json", b'{"input": "a", "options": {"max_new_tokens": 3}}'),
]


class Client:
    """Sends bodies and looks at each answer."""

    def __init__(self, server: Running) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30)
        self.before = [self.good(path) for path in GOOD]

    def good(self, path: str) -> Any:
        kind, content = GOOD[path]
        response = self.http.post(path, content=content, headers={"content-type": kind})
        assert response.status_code == 200, response.text
        return response.json()

    def send(self, path: str, content: Any, kind: str = "", **headers: str) -> int:
        """The status; a body that is not refused is answered."""
        sent = {"content-type": kind.encode("latin-1"), **headers} if kind else headers
        response = self.http.post(path, content=content, headers=sent)
        check(response.status_code, response.text, path)
        return response.status_code

    def still_good(self) -> None:
        assert [self.good(path) for path in GOOD] == self.before


def check(status: int, text: str, path: str = "") -> None:
    if status == 200:
        assert path.endswith("/stream") or json.loads(text)["answers"]
        return
    assert 400 <= status < 500 or status in (503, 504), (status, text)
    content = json.loads(text)
    assert list(content) == ["error"]
    assert content["error"].strip()
    assert len(content["error"]) < 600
    assert not INTERNALS.search(content["error"]), content


CSV_FIELD = 131_072  # characters, Python's default


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    client = Client(server)
    former = csv.field_size_limit(CSV_FIELD)  # of the process; reading tables of texts raises it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries on damaged files; in a server, they go to its log
        yield client
        client.still_good()
    csv.field_size_limit(former)
    client.http.close()


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([10**400, -(2**63), 1e308, float("nan"), float("inf"), "\ud800", "", "data:image/png;base64,"])
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
inputs = values | st.lists(st.floats(width=32) | st.integers(-9, 9), max_size=6) | st.text()
bodies = values | st.fixed_dictionaries(
    {},
    optional={
        "input": inputs,
        "inputs": st.lists(inputs, max_size=20) | values,
        "options": values | st.dictionaries(st.sampled_from(["top", "temperature", "max_new_tokens"]), leaves),
        "inpt": values,
    },
)


@pytest.mark.slow
@FUZZ
@given(path=st.sampled_from(PATHS), body=bodies)
def test_json(server: Running, path: str, body: Any) -> None:
    send_once(server, path, json.dumps(body).encode(), "application/json")


@pytest.mark.slow
@FUZZ
@given(path=st.sampled_from(PATHS), kind=st.sampled_from(TYPES), content=st.binary(max_size=300))
def test_bytes(server: Running, path: str, kind: str, content: bytes) -> None:
    send_once(server, path, content, kind)


@pytest.mark.slow
@FUZZ
@given(path=st.sampled_from(PATHS), query=st.dictionaries(st.text(max_size=9) | st.just("top"), st.text(max_size=9)))
def test_query(server: Running, path: str, query: dict[str, str]) -> None:
    send_once(server, f"{path}?{urlencode(query, errors='replace')}", GOOD[IMAGES][1], "image/png")


def send_once(server: Running, path: str, content: bytes, kind: str) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as http:
        sent = [(b"content-type", kind.encode("latin-1"))] if kind else []
        response = http.post(path, content=content, headers=sent)
    check(response.status_code, response.text, path.partition("?")[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_damaged_files(client: Client, number: int) -> None:
    """Good bodies, cut, with changed, doubled and missing bytes, and with the types of others."""
    path, kind, content = SEEDS[number]
    assert client.send(path, content, kind) in (200, 422)
    dice = random.Random(number)
    for attempt in range(60):
        damaged = bytearray(content)
        for _ in range(dice.choice([1, 1, 2, 8])):
            place = dice.randrange(len(damaged) or 1)
            if attempt % 4 == 0:
                del damaged[place:]
            elif attempt % 4 == 1 and damaged:
                damaged[place] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            elif attempt % 4 == 2:
                del damaged[place : place + dice.randrange(1, 9)]
            else:
                damaged[place:place] = damaged[place : place + dice.randrange(1, 99)]
        client.send(path, bytes(damaged), kind)
        client.send(dice.choice(PATHS), bytes(damaged), dice.choice(TYPES))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def zipped(name: str, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "kind", "content", "status"),
    [
        (ARRAYS, "application/json", b'{"input": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
        (ARRAYS, "application/json", b'{"input": ' + b"[" * 900 + b"]" * 900 + b"}", 422),
        (ARRAYS, "application/json", b'{"input": ' + b"[" * 70 + b"1" + b"]" * 70 + b"}", 422),
        (ARRAYS, "application/json", b'{"input": ' + b'{"x":' * 900 + b"1" + b"}" * 900 + b"}", 422),
        (TEXTS, "application/json", b'{"input": ' + b'{"prompt":' * 900 + b"1" + b"}" * 900 + b"}", 422),
        (ARRAYS, "application/json", b'{"input": [' + b"9" * 5000 + b"]}", 400),
        (ARRAYS, "application/json", b'{"input": [' + b"9" * 400 + b", 1, 1, 1]}", 422),
        (ARRAYS, "application/json", b'{"input": [1e999, 1, 1, 1]}', 422),
        (ARRAYS, "application/json", b'{"input": [true, false, true, null]}', 422),
        (ARRAYS, "application/json", b'{"input": {"x": "1"}}', 422),
        (ARRAYS, "application/json", b'{"inputs": [' + b"[1,2,3,4]," * 20_000 + b"[1,2,3,4]]}", 413),
        (ARRAYS, "application/x-npy", npy(np.full((1, 4), np.nan, np.float32)), 422),
        (ARRAYS, "application/x-npy", npy(np.ones((1, 4), np.float64)), 422),
        (ARRAYS, "application/x-npy", npy(np.ones((1, 4), np.complex64)), 422),
        (ARRAYS, "application/x-npy", npy(np.ones((0, 4), np.float32)), 422),
        (ARRAYS, "application/x-npy", npy(np.float32(1)), 422),
        (ARRAYS, "application/x-npy", npy(np.array(["a"])), 422),
        (ARRAYS, "application/zip", zipped("x.npy", bytes(100_000_000)), 413),
        (ARRAYS, "application/zip", zipped("x.npy", b"a", zipfile.ZIP_BZIP2), 422),
        (ARRAYS, "application/zip", zipped("../../x", npy(np.ones(4, np.float32))), 200),
        (IMAGES, "image/png", png_of(100_000, 100_000), 413),
        (IMAGES, "image/png", png_of(2**31 - 1, 2**31 - 1), 413),
        (IMAGES, "image/png", png_of(0, 0), 422),
        (IMAGES, "image/png", png_of(500, 500), 422),
        (IMAGES, "image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"/>', 422),
        (IMAGES, "multipart/form-data; boundary=" + "x" * 500, form(FILE + png(), boundary=b"x" * 500), 400),
        (IMAGES, 'multipart/form-data; boundary=""', form(FILE + png()), 400),
        (IMAGES, "multipart/form-data; boundary=x; boundary=y", form(FILE + png()), 0),
        (IMAGES, "multipart/form-data; boundary=x", form(*[FILE + b"a"] * 500), 413),
        (TEXTS, "text/csv", b'prompt\n"never closed', 0),
        (TEXTS, "text/csv", b"prompt\n" + b"x" * 200_000, 400),
        (TEXTS, "text/csv", b"prompt\n\0\n", 0),
        (TEXTS, "text/csv", "prompt\nü\n".encode("utf-16"), 400),
        (TEXTS, "text/plain; charset=latin-1", "ü".encode("latin-1"), 200),
        (TEXTS, "text/plain", b"x" * 300_000, 413),
        (TEXTS, "text/plain", b"x" * 101, 200),  # longer than the context
        (TEXTS, "application/json", b'{"input": "a", "options": {"temperature": 1e309}}', 422),
        (TEXTS, "application/json", b"\xef\xbb\xbf" + b'{"input": "a"}', 200),
    ],
)  # fmt: skip
def test_bombs_and_oddities(client: Client, path: str, kind: str, content: bytes, status: int) -> None:
    received = client.send(path, content, kind)
    assert status in (0, received)


def chunked(*pieces: tuple[int, bytes]) -> bytes:
    """A body in pieces whose lengths may be wrong."""
    head = f"POST {TEXTS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"".join(b"%x\r\n" % size + piece + b"\r\n" for size, piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (chunked((5, b"hello")), 200),
        (chunked((3, b"hello")), 400),
        (chunked((9, b"hello")), 0),
        (chunked((2**40, b"hello")), 408),
        (chunked(*[(60_000, b"x" * 60_000)] * 6), 413),
        (chunked((5, b"hello"))[:-5], 408),
        (request(TEXTS, b"hello", "Content-Type: text/plain", "Content-Encoding: gzip"), 415),
        (request(TEXTS, b"hello", "Content-Type: text/plain", "Expect: 100-continue", "Connection: close"), 200),
        (request(TEXTS, b"hello", "Content-Type: text/plain").replace(b"Length: 5", b"Length: 4"), 0),
        (request(TEXTS, b"hello", "Content-Type: text/plain").replace(b"Length: 5", b"Length: 6"), 408),
        (request(TEXTS, b"hello", "Content-Type: text/plain").replace(b"Length: 5", b"Length: " + b"9" * 30), 400),
        (request(TEXTS, b"hello", "Content-Type: text/plain", "Upgrade: websocket", "Connection: Upgrade"), 200),
        (request(TEXTS + "/%00%ff/..%2f..%2fetc", b"hello"), 404),
        (request("//" + TEXTS, b"hello"), 404),
        (request("http://elsewhere.example/" + TEXTS, b"hello"), 0),
    ],
)
@pytest.mark.slow
def test_lies_about_lengths(server: Running, client: Client, sent: bytes, status: int) -> None:
    received, _, content = server.ask(sent)
    assert status in (0, received), content
    if received:
        check(received, json.dumps(content))


@pytest.mark.slow
def test_garbage_on_the_socket(server: Running, client: Client) -> None:
    dice = random.Random(0)
    good = request(ARRAYS, GOOD[ARRAYS][1], "Content-Type: application/json")
    for attempt in range(150):
        sent = bytearray(good if attempt % 3 else dice.randbytes(dice.randrange(1, 2000)))
        for _ in range(dice.choice([1, 2, 8])):
            sent[dice.randrange(len(sent))] = dice.randrange(256)
        with server.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while more := connection.recv(65536):
                received += more
            head, _, body = received.partition(b"\r\n\r\n")
            if head:
                status = int(head.split()[1])
                assert status < 500, received
                if status >= 400 and not body.startswith(b"HTTP/"):
                    check(status, body.partition(b"HTTP/1.1 ")[0].decode())


@pytest.mark.slow
def test_openapi(server: Running, client: Client) -> None:
    """All that the schema allows and forbids, and whether the answers are those that it declares."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
    checks = [schemathesis.checks.CHECKS.get_one(name) for name in names]
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 10
    names_served = [path.rpartition("/")[2] for path in (IMAGES, ARRAYS, TEXTS, ROWS)]
    modes, statuses = schemathesis.GenerationMode, Counter()
    for operation in operations:
        for mode in (modes.POSITIVE, modes.NEGATIVE):

            @settings(FUZZ, max_examples=40)
            @given(case=operation.as_strategy(generation_mode=mode), known=st.sampled_from(["", *names_served]))
            def send(case: Any, known: str) -> None:
                if known and "name" in case.path_parameters:
                    case.path_parameters |= {name: known if name == "name" else "1" for name in case.path_parameters}
                statuses[case.call_and_validate(checks=checks).status_code] += 1

            with contextlib.suppress(*([Unsatisfiable] if mode is modes.NEGATIVE else [])):  # nothing is forbidden
                send()
    assert statuses[200] > 50, statuses
    assert {400, 404, 415, 422} <= statuses.keys(), statuses
