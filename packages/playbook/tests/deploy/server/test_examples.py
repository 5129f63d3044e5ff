"""The example of a model as the body of a request: what an artefact holds, or a row of typical values."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from deploy.test_runtime_rows import PLAN, ROW, of_rows
from deploy.test_server import client_of, png
from playbook.deploy.served import ServedArtefact
from playbook.deploy.server.app import make_app
from playbook.deploy.server.catalogue import Catalogue, Place
from playbook.deploy.server.examples import MOST_BYTES, MOST_NUMBERS, Example, example_of
from playbook.deploy.server.limits import Limits
from playbook.testing.serving import Fake


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def example_in(folder: Path, name: str, content: bytes) -> Example | None:
    (folder / name).write_bytes(content)
    return example_of({"example": {"input": name}}, folder)


@pytest.mark.parametrize(("name", "media_type"), [("input.png", "image/png"), ("input.wav", "audio/wav")])
def test_files_are_bodies_as_they_are(tmp_path: Path, name: str, media_type: str) -> None:
    assert example_in(tmp_path, name, png()) == Example(png(), media_type, True)


@pytest.mark.parametrize(
    ("name", "content", "source"),
    [
        ("input.txt", "größe".encode(), "größe"),
        ("input.jsonl", b'{"text": "a\\nb"}\n', {"text": "a\nb"}),
        ("input.npy", npy(np.array([[1 / 3, 2]], np.float32)), [[0.333333, 2.0]]),
        ("input.npz", npz(x=np.array([1, 2]), y=np.float32(0.5)), {"x": [1, 2], "y": 0.5}),
    ],
)
def test_others_become_json(tmp_path: Path, name: str, content: bytes, source: Any) -> None:
    example = example_in(tmp_path, name, content)
    assert example is not None
    assert (json.loads(example.content), example.media_type) == ({"input": source}, "application/json")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("input.npy", npy(np.zeros(MOST_NUMBERS + 1, np.uint8))),
        ("input.npy", npy(np.array([{}], dtype=object))),
        ("input.npz", b"PK"),
        ("input.jsonl", b"{"),
        ("input.txt", b"\xff"),
        ("input.png", b"x" * (MOST_BYTES + 1)),
        ("input.bin", b"x"),
    ],
)
def test_what_cannot_be_shown_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    assert example_in(tmp_path, name, content) is None


@pytest.mark.parametrize("example", [None, {}, {"input": 3}, {"input": "missing.png"}, {"input": "../secret.txt"}])
def test_no_file_beyond_the_artefact(tmp_path: Path, example: Any) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "artefact"
    folder.mkdir()
    assert example_of({"example": example}, folder) is None
    assert example_of({"example": {"input": (tmp_path / "secret.txt").as_posix()}}, folder) is None


def test_a_row_is_made_up_where_there_is_none() -> None:
    example = example_of({"preprocessing": PLAN}, None)
    assert example is not None
    assert not example.is_sample
    assert json.loads(example.content)["input"].keys() == ROW.keys()
    assert example_of({"preprocessing": {"kind": "image"}}, None) is None


def test_the_example_is_a_body_that_the_model_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_rows(tmp_path, monkeypatch)
    catalogue = Catalogue(Limits())
    catalogue.add(Place("m", 1, tmp_path), ServedArtefact(tmp_path))
    with TestClient(make_app(catalogue), base_url="http://localhost") as client:
        described = client.get("/v1/models/m").json()["example"]
        for path in ("/v1/models/m", "/v1/models/m/versions/1"):
            example = client.get(f"{path}/example")
            assert example.headers["content-type"] == described["type"] == "application/json"
            answer = client.post(path, content=example.content, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text


def test_a_model_without_one_says_so() -> None:
    with client_of(Fake("image")) as client:
        response = client.get("/v1/models/m/example")
        assert (response.status_code, response.json()) == (404, {"error": "model m: has no example"})
        assert client.get("/v1/models/m").json()["example"] is None


def test_examples_need_the_token() -> None:
    with client_of(Fake("row"), token="secret") as client:
        assert client.get("/v1/models/m/example").status_code == 401


def test_the_values_of_options_that_are_not_chosen() -> None:
    fake = Fake("text", "labels")
    fake.manifest |= {"postprocessing": {"kind": "labels", "names": ["a"], "threshold": 0.4, "top": 3}}
    with client_of(fake) as client:
        assert client.get("/v1/models/m").json()["defaults"] == {"top": 3, "score": 0.4}
