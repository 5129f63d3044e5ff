"""The server over its HTTP interface: every payload, every refusal, versions, limits and the end."""

import base64
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from deploy.test_export import EXPORT, run
from playbook.deploy.runtime.artefact import Kind
from playbook.deploy.server.answers import encode, plain
from playbook.deploy.server.app import PAGE, make_app
from playbook.deploy.server.catalogue import Catalogue, Place, find_places, safe_name
from playbook.deploy.server.limits import Limits
from playbook.deploy.server.queue import BatchQueue, QueueClosed, QueueFull
from playbook.errors import UserError
from playbook.testing.command import Cli
from playbook.testing.serving import Fake, ask
from playbook.verbs.serve import checked_limits, parsed, split, token_of
from running import cli_process

__all__ = ["run"]
SMALL = Limits(batch_size=4, max_queue=8, max_body_mib=0.05, timeout_s=2.0, body_timeout_s=1.0, max_pixels=10_000)


def client_of(*models: Fake, limits: Limits = SMALL, **options: Any) -> TestClient:
    catalogue = Catalogue(limits)
    for number, model in enumerate(models, start=1):
        catalogue.add(Place("m", number), model)
    return TestClient(make_app(catalogue, **options), base_url="http://localhost", raise_server_exceptions=False)


def png(width: int = 3, height: int = 2) -> bytes:
    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, "PNG")
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=np.asarray(array).dtype == object)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_pages_and_descriptions() -> None:
    with client_of(Fake("text"), Fake("text")) as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").status_code == 200
        assert client.get("/").status_code == client.get("/docs").status_code == 200
        assert "default-src 'none'" in client.get("/").headers["content-security-policy"]
        [model] = client.get("/v1/models").json()["models"]
        assert (model["name"], model["version"], model["versions"]) == ("m", 2, [1, 2])
        assert (model["classes"], model["colours"]) == (["cat", "dog"], ["#800000", "#008000"])
        assert client.get("/v1/models/m/versions/1").json()["version"] == 1
        assert client.get("/openapi.json").json()["paths"].keys() >= {"/v1/models/{name}", "/health"}
        client.post("/v1/models/m", json={"inputs": ["a", "b"]})
        text = client.get("/metrics").text
        assert 'playbook_batch_size_count{model="m",version="2"} 1.0' in text
        assert 'status="200"' in text


@pytest.mark.parametrize(
    ("kind", "content", "media_type", "answers"),
    [
        ("text", b'{"input": "a"}', "application/json", ["a"]),
        ("text", b'{"inputs": ["a", "b"]}', "application/json", ["a", "b"]),
        ("text", "größe".encode(), "text/plain", ["größe"]),
        ("text", b"text\na\nb\n", "text/csv", ["{'text': 'a'}", "{'text': 'b'}"]),
        ("text", b"text\ta\n1\t2\n", "text/tab-separated-values", ["{'text': '1', 'a': '2'}"]),
        ("text", b'"a"\n"b"\n', "application/x-ndjson", ["a", "b"]),
        ("tensor", b'{"input": [1, 2]}', "application/json", [[1, 2]]),
        ("tensor", b"u,v\n1,2\n3,4\n", "text/csv", [[1, 2], [3, 4]]),
        ("tensor", npy([[1.0, 2.0], [3.0, 4.0]]), "application/octet-stream", [[1, 2], [3, 4]]),
        ("tensor", npy([1.0, 2.0]), "", [[1, 2]]),
        ("tensor", npz(x=[[1.0, 2.0]]), "", [[1, 2]]),
    ],
)
def test_payloads(kind: Kind, content: bytes, media_type: str, answers: list[Any]) -> None:
    with client_of(Fake(kind)) as client:
        response = client.post("/v1/models/m", content=content, headers={"content-type": media_type})
        assert response.status_code == 200, response.text
        seen = [answer["seen"] for answer in response.json()["answers"]]
        if media_type == "" and content[:2] == b"PK":
            assert len(seen) == 1
        else:
            assert seen == answers


def test_images() -> None:
    fake = Fake("image", "classes")
    with client_of(fake) as client:
        for media_type in ("image/png", "application/octet-stream"):
            response = client.post("/v1/models/m?top=2", content=png(), headers={"content-type": media_type})
            assert response.status_code == 200, response.text
            assert response.json()["answers"][0]["top"] == 2
        files = [("file", ("a.png", png(), "image/png")), ("file", ("b.png", png(), "image/png"))]
        assert len(client.post("/v1/models/m", files=files).json()["answers"]) == 2
        text = base64.b64encode(png()).decode()
        for source in (text, f"data:image/png;base64,{text}"):
            assert client.post("/v1/models/m", json={"input": source}).status_code == 200


@pytest.mark.parametrize(
    ("kind", "content", "media_type", "status", "text"),
    [
        ("text", b"", "application/json", 400, "the body is empty"),
        ("text", b"{", "application/json", 400, "not valid JSON"),
        ("text", b'{"input": NaN}', "application/json", 400, "NaN"),
        ("text", b"[" * 9000, "application/json", 400, ""),
        ("text", b'{"input": "\\ud800"}', "application/json", 400, "surrogate"),
        ("text", b'{"inpt": 1}', "application/json", 422, "expected {"),
        ("text", b'{"input": 1, "inputs": []}', "application/json", 422, "only one"),
        ("text", b'{"inputs": []}', "application/json", 422, "at least one"),
        ("text", b'{"inputs": 3}', "application/json", 422, "expected a list"),
        ("text", b'{"input": 3}', "application/json", 422, "expected a text"),
        ("text", b'{"input": "a", "options": 3}', "application/json", 422, "options"),
        ("text", b'{"input": "a", "options": {"topp": 3}}', "application/json", 422, "topp"),
        ("text", b'{"input": "bad"}', "application/json", 422, "is bad"),
        ("text", b'{"inputs": ["a", "bad"]}', "application/json", 422, "input 1: is bad"),
        ("text", b'{"input": "bug"}', "application/json", 500, "internal error"),
        ("text", b'{"input": "crash"}', "application/json", 500, "internal error"),
        ("text", json.dumps({"inputs": ["a"] * 9}).encode(), "application/json", 413, "at most 8"),
        ("text", b"a" * 60_000, "text/plain", 413, "0.05 MiB"),
        ("text", b"a,b\n1\n", "text/csv", 422, "row 2"),
        ("text", b"\xff\xfe\xfd", "text/plain", 400, ""),
        ("text", b"--x\r\n", "multipart/form-data", 400, "boundary"),
        ("text", b"--x\r\nContent-Disposition: form-data", "multipart/form-data; boundary=x", 400, "truncated"),
        ("image", b"no image", "image/png", 422, "not an image"),
        ("image", png(200, 200), "image/png", 413, "200 × 200"),
        ("image", b'{"input": "%%%"}', "application/json", 422, "base64"),
        ("image", b'{"input": 3}', "application/json", 422, "base64"),
        ("tensor", npy(np.array([{}])), "application/octet-stream", 422, "never unpickled"),
        ("tensor", npy([1.0, 2.0])[:-3], "application/octet-stream", 400, "truncated"),
        ("tensor", npz(y=[[1.0, 2.0]], z=[1.0]), "application/octet-stream", 422, "expected x"),
        ("tensor", b"PK\x03\x04 damaged", "application/octet-stream", 400, ".npz"),
        ("tensor", b"\x93NUMPY damaged", "application/octet-stream", 400, ".npy"),
        ("tensor", b"1,a\n", "text/csv", 422, "expected numbers"),
        ("tensor", b'{"input": "a"}', "application/json", 422, "expected numbers"),
    ],
)  # fmt: skip
def test_refusals(kind: Kind, content: bytes, media_type: str, status: int, text: str) -> None:
    fake = Fake(kind, "classes")
    with client_of(fake) as client:
        response = client.post("/v1/models/m", content=content, headers={"content-type": media_type})
        assert response.status_code == status, response.text
        assert text in response.json()["error"]
        assert "secret" not in response.text
        assert client.get("/health").status_code == 200


def test_unknown_models_and_versions() -> None:
    with client_of(Fake("text")) as client:
        for path in ("n", "m/versions/2", "m/versions/x", "m/versions/99999999999999999999999"):
            response = client.post(f"/v1/models/{path}", json={"input": "a"})
            assert response.status_code == 404
            assert response.json()["error"]
        assert client.get("/nothing").status_code == 404
        assert client.delete("/v1/models/m").status_code == 405


def test_token_and_host() -> None:
    with client_of(Fake("text"), token="t", is_local=True) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer x"}).status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer t"}).status_code == 200
        assert client.get("/health", headers={"host": "evil.example"}).status_code == 403
        site = {"authorization": "Bearer t", "sec-fetch-site": "cross-site"}
        assert client.post("/v1/models/m", json={"input": "a"}, headers=site).status_code == 403


@pytest.mark.parametrize("token", [None, "t"])
def test_openapi_declares_the_token_where_it_is_asked_for(token: str | None) -> None:
    with client_of(Fake("text"), token=token) as client:
        schema = client.get("/openapi.json").json()
    declared = [{"HTTPBearer": []}] if token else None
    for path in ("/metrics", "/v1/models", "/v1/models/{name}"):
        assert schema["paths"][path]["get"].get("security") == declared
    assert "security" not in schema["paths"]["/health"]["get"]
    assert ("securitySchemes" in schema.get("components", {})) == bool(token)


def test_streams() -> None:
    with client_of(Fake("prompt", "generate")) as client:
        response = client.post("/v1/models/m/stream", json={"input": "a", "options": {"max_new_tokens": 3}})
        events = [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]
        assert events == [{"text": "one "}, {"text": "two"}, {"done": True}]
        failed = client.post("/v1/models/m/stream", json={"input": "crash"})
        assert "internal error" in failed.text
        assert "secret" not in failed.text
        assert client.post("/v1/models/m/stream", json={"inputs": ["a", "b"]}).status_code == 422
        assert client.post("/v1/models/m", json={"input": "a", "options": {"max_new_tokens": 9999}}).status_code == 422
    with client_of(Fake("text")) as client:
        assert client.post("/v1/models/m/stream", json={"input": "a"}).status_code == 404


@pytest.mark.slow
def test_full_queue_and_slow_model() -> None:
    fake = Fake("text")
    with client_of(fake) as client:
        fake.gate.clear()
        codes: list[int] = []

        def ask() -> None:
            codes.append(client.post("/v1/models/m", json={"inputs": ["a"] * 8}).status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        fake.gate.set()
        assert set(codes) == {429, 504}
        assert client.post("/v1/models/m", json={"input": "a"}).status_code == 200


def test_what_waits_is_answered_together() -> None:
    fake = Fake("text")
    fake.gate.clear()
    queue = BatchQueue(fake.answer_samples, batch_size=4, capacity=100)
    first = queue.submit(["0"])
    time.sleep(0.1)
    others = [queue.submit([str(number)]) for number in range(1, 7)]
    fake.gate.set()
    assert first.result(5) == [{"seen": "0"}]
    assert [future.result(5)[0]["seen"] for future in others] == [str(number) for number in range(1, 7)]
    assert fake.sizes == [1, 4, 2]
    queue.close()
    with pytest.raises(QueueClosed):
        queue.submit(["a"])


def test_one_bad_sample_does_not_fail_the_others() -> None:
    fake = Fake("text")
    fake.gate.clear()
    queue = BatchQueue(fake.answer_samples, batch_size=4, capacity=6)
    futures = [queue.submit([text]) for text in ("a", "b", "crash", "c")]
    fake.gate.set()
    results = [future.exception(5) for future in futures]
    assert [type(result) for result in results] == [type(None), type(None), RuntimeError, type(None)]
    fake.gate.clear()
    with pytest.raises(QueueFull):
        queue.submit(["a"] * 7)
    fake.gate.set()
    queue.close()


def test_another_version_takes_over_without_a_lost_request(tmp_path: Path) -> None:
    """While requests run, an artefact is replaced, and a version added and removed."""

    def write(name: str, version: int, word: str) -> None:
        folder = tmp_path / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "artefact.json").write_text(json.dumps({"name": name, "word": word}))

    write("m", 1, "old")
    loaded: list[Path] = []

    def load(folder: Path) -> Fake:
        loaded.append(folder)
        if json.loads((folder / "artefact.json").read_text())["word"] == "broken":
            raise ValueError("cannot be loaded")
        return Fake("text")

    catalogue = Catalogue(SMALL, load, (tmp_path,))
    catalogue.load_all()
    with TestClient(make_app(catalogue), base_url="http://localhost") as client:
        codes: list[int] = []
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.is_set():
                codes.append(client.post("/v1/models/m", json={"input": "a"}).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        for version, word in ((2, "new"), (1, "replaced"), (3, "broken")):
            time.sleep(0.05)
            write("m", version, word)
            changes = client.post("/v1/rescan").json()
            assert changes["failed" if word == "broken" else "loaded"] == [f"m/{version}"]
        is_over.set()
        thread.join()
        assert set(codes) == {200}
        assert client.get("/v1/models/m").json()["versions"] == [1, 2]
        (tmp_path / "m/2/artefact.json").unlink()
        (tmp_path / "m/3/artefact.json").unlink()
        assert client.post("/v1/rescan").json()["removed"] == ["m/2"]
    assert len(loaded) == 4


def test_folders_that_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected an artefact"):
        find_places((tmp_path,))
    (tmp_path / "artefact.json").write_text("{")
    with pytest.raises(UserError, match=r"artefact\.json cannot be read"):
        find_places((tmp_path,))
    (tmp_path / "artefact.json").write_text('{"name": "a b"}')
    assert find_places((tmp_path,))[0].name == "a-b"
    with pytest.raises(UserError, match="is also in"):
        find_places((tmp_path, tmp_path))
    assert safe_name("///") == "model"


def test_answers_as_json() -> None:
    mask = np.array([[0, 1], [1, 0]])
    answer = plain({"mask": mask, "value": float("nan"), "scores": np.array([0.5]), "none": None, "other": (1, "a")})
    assert answer["mask"]["height"] == 2
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["mask"]["png"])))), mask)
    assert json.loads(encode(answer)) == answer
    assert (answer["value"], answer["scores"], answer["none"], answer["other"]) == (None, [0.5], None, [1, "a"])
    assert plain(np.full((2, 2), 70_000 % 60_000))["width"] == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--port", "70000"], "--port 70000: expected a number in"),
        (["--port", "x"], "invalid int value: 'x'"),
        (["--batch_size", "0"], "--batch_size 0: expected at least 1"),
        (["--max_pixels", "0"], "--max_pixels 0: expected at least 1"),
        (["--threads", "0"], "--threads 0: expected at least 1"),
        (["--cors", "shop.example"], "--cors shop.example: expected an origin such as https://"),
        (["--timeout_s", "0"], "--timeout_s 0.0: expected a positive number"),
        (["--prt", "1"], "Nearest: --port"),
        (["--token_env", "NO_SUCH_VARIABLE"], "--token_env NO_SUCH_VARIABLE: this environment variable is not set"),
        (["--host", "256.1.1.1"], "--host 256.1.1.1: "),
    ],
)
def test_mistakes(cli: Cli, workdir: Path, options: list[str], text: str) -> None:
    (workdir / "artefact").mkdir()  # it is opened last
    done = cli("serve", "artefact", *options)
    assert done.code == 2, done.out
    assert text in done.err or text.replace("Nearest: --port", "port") in done.err


def test_port_in_use(cli: Cli, workdir: Path) -> None:
    (workdir / "artefact").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("serve", "artefact", "--port", str(taken.getsockname()[1]))
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert "cannot be bound on 127.0.0.1" in done.err
    done = cli("serve", "nothing")
    assert (done.code, done.err) == (2, "error: serve nothing: no such artefact, folder or run\n")


def test_options() -> None:
    assert split(["a", "--port", "1", "b", "--host=x"]) == (["a", "b"], ["--port", "1", "--host=x"])
    assert parsed(["--batch-size=3"])["batch_size"] == 3
    assert checked_limits(parsed([])).batch_size == 32
    assert checked_limits(parsed(["--max_pixels", "9", "--threads", "2"])).max_pixels == 9
    assert token_of(None) is None


@pytest.mark.slow
def test_process_of_an_artefact(cli: Cli, run: Path, workdir: Path) -> None:
    assert cli(*EXPORT, "--format", "onnx", "--output", "artefact").code == 0
    answer = ask(cli_process("serve", "artefact", "--port", "0", cwd=workdir), Path("artefact/example/input.npy"), "")
    expected = json.loads(Path("artefact/example/answer.json").read_text())
    assert answer.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(answer[name], value, atol=1e-5)


@pytest.mark.slow
def test_a_slow_client_is_refused() -> None:
    with client_of(Fake("text"), limits=Limits(body_timeout_s=0.2)) as client:

        def drip() -> Iterator[bytes]:
            for _ in range(5):
                time.sleep(0.15)
                yield b" "

        response = client.post("/v1/models/m", content=drip(), headers={"content-type": "text/plain"})
        assert response.status_code in (400, 408)


def test_page_loads_nothing_from_elsewhere() -> None:
    with client_of(Fake("text")) as client:
        for name in ("", "docs", "page/style.css", *(f"page/{file.name}" for file in PAGE.iterdir())):
            response = client.get(f"/{name}")
            assert response.status_code == 200
            own = response.text.replace("http://www.w3.org/2000/svg", "").replace("http://localhost/", "")
            assert not re.search(r"https?://|\bon\w+=|style=|innerHTML", own), name


def test_help(cli: Cli) -> None:
    assert "--port" in cli("serve", "--help").out
