"""Recordings behind the server: every way to send them, and what is refused."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.test_runtime_audio import PLAN, RATE, tone, wav
from deploy.test_server import client_of
from playbook.deploy.served import ServedArtefact
from playbook.testing.artefacts import artefact_of

PATH = "/v1/models/m"
NAMES = ["loud", "long"]


def logits(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Whether a recording is loud, and whether it is long."""
    loud, long = np.abs(inputs["audio"]).max(axis=1) - 0.3, inputs["length"] - 3000.0
    return {"logits": np.stack([100 * loud, long], axis=1).astype(np.float32).clip(-20, 20)}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    inputs = {"audio": ("float32", ["B", "T"]), "length": ("int64", ["B"])}
    answering = {"kind": "labels", "names": NAMES, "threshold": 0.5, "top": 1}
    artefact_of(monkeypatch, tmp_path, logits, inputs, ["logits"], preprocessing=PLAN, postprocessing=answering)
    return ServedArtefact(tmp_path)


def test_every_way_to_send_recordings(model: Any) -> None:
    loud, long = wav(tone(48_000, 0.25), 48_000), wav(0.1 * tone(RATE, 0.5))
    with client_of(model) as client:
        assert client.get(PATH).json()["kind"] == "audio"
        text = base64.b64encode(loud).decode()
        requests: list[dict[str, Any]] = [
            {"content": loud, "headers": {"content-type": "audio/wav"}},
            {"content": loud},
            {"files": {"file": ("a.wav", loud)}},
            {"json": {"input": text}},
            {"json": {"input": f"data:audio/wav;base64,{text}"}},
        ]
        for request in requests:
            [answer] = client.post(PATH, **request).json()["answers"]
            assert (answer["labels"], answer["label"]) == ("loud", "loud"), list(request)
            assert answer["probability"] == pytest.approx(1)
        both = client.post(PATH, files=[("file", ("a.wav", loud)), ("file", ("b.wav", long))]).json()["answers"]
        assert [answer["labels"] for answer in both] == ["loud", "long"]
        [answer] = client.post(f"{PATH}?top=2&score=0", content=loud).json()["answers"]
        assert (answer["labels"], answer["label_2"]) == ("loud, long", "long")


@pytest.mark.parametrize(
    ("request_of", "status", "message"),
    [
        ({"content": b"no recording", "headers": {"content-type": "audio/mpeg"}}, 422, "Format not recognised"),
        ({"content": wav(tone(RATE, 0.6))}, 422, "is 0.60 s long, expected at most 0.5 s"),
        ({"content": wav(tone(RATE))[:999]}, 422, "is truncated: its header announces 4,000 bytes of samples"),
        ({"content": wav(tone(RATE)), "headers": {"content-type": "image/png"}}, 415, "the model takes a recording"),
        ({"content": b""}, 400, "the body is empty, expected a recording"),
        ({"json": {"input": {"file": "/etc/passwd", "first": 0, "stop": 9}}}, 422, "expected an audio file as base64"),
        ({"json": {"input": "/etc/passwd"}}, 422, "is not base64"),
        ({"content": wav(tone(RATE)), "params": {"top": 0}}, 422, "top: expected at least 1"),
        ({"content": wav(tone(RATE)), "params": {"score": 2}}, 422, r"score: expected a number in [0, 1]"),
    ],
)
def test_refusals(model: Any, request_of: dict[str, Any], status: int, message: str) -> None:
    with client_of(model) as client:
        answer = client.post(PATH, **request_of)
    assert (answer.status_code, message in json.dumps(answer.json())) == (status, True), answer.text
